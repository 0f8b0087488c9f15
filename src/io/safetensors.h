// safetensors files: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
//
// The checksum: `__metadata__.checksum` holds 16 lower-case hex digits, the FNV-1a 64 of the header's bytes
// (with its padding, without the length in front) and then the data's bytes, the header being read with 16
// spaces in place of the digits of its text `"checksum":"<16 digits>"`. That text stands there once: inside
// another string its quotes would be escaped.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "io/file.h"

namespace normscope {

// The types of elements that can be read and written; a tensor of another one can only be listed.
enum class Dtype { F32, F64, BF16, I64, unknown };

using Metadata = std::map<std::string, std::string>;

// A tensor to write.
struct TensorView {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;  // [] is a scalar
  const void* data;
};

// A tensor of a file.
struct TensorInfo {
  std::string name;
  Dtype dtype;
  std::string dtype_name;  // as the file has it
  std::vector<Index> shape;
  Index count;       // elements
  Index begin, end;  // bytes, from the end of the header
};

std::string shape_text(std::span<const Index> shape);  // (2, 3)

// Replaces `path` atomically. Same arguments, same bytes. Tensors keep the order they are given in, but those
// of 8-byte elements come before the others: loaders that map the file need every element aligned, and the
// format allows no gaps. Adds `format` = pt, unless given, and `checksum`.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors, const Metadata& metadata,
                       Keep keep = Keep::nothing);

// Hands the same bytes to `write`, a piece at a time. `path` is for errors.
void write_safetensors(const std::function<void(std::string_view)>& write, const std::string& path,
                       std::span<const TensorView> tensors, const Metadata& metadata);

// An open file whose header, and checksum where it has one, are good. Errors: `[safetensors] path: ...`,
// Damaged but for those of the system; of usage where there is no such file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  bool has_checksum() const { return metadata_.contains("checksum"); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their data
  const TensorInfo* find(std::string_view name) const;                 // null if there is none
  const TensorInfo& at(std::string_view name) const;                   // Error if there is none

  // Reads a tensor of exactly `count` elements. float and double take F32, F64 and BF16; int64 takes I64.
  template <class Number>
  void read_into(std::string_view name, Number* out, Index count) const;

 private:
  void read_header(const std::string& header);
  TensorInfo read_tensor(const std::string& name, const nlohmann::json& entry) const;
  void verify_checksum(std::string header) const;
  void read(void* out, Index size, Index offset) const;
  template <class... Parts>
  [[noreturn]] void fail_damaged(const Parts&... what) const;

  std::string path_;
  FileDescriptor file_;
  Index data_begin_ = 0;  // bytes, from the start of the file
  Index data_size_ = 0;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace normscope
