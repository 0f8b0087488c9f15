// safetensors files: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
//
// `__metadata__.checksum` holds 16 lower-case hex digits: the FNV-1a 64 of the header's bytes (with padding,
// without the length) and the data's bytes, where the digits in `"checksum":"<16 digits>"` of the header
// count as 16 spaces. That text occurs once, because inside another string its quotes would be escaped.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "io/file.h"

namespace normscope {

// The element types that can be read and written; a tensor of another type can only be listed.
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
  std::string dtype_name;  // in the file
  std::vector<Index> shape;
  Index count;       // elements
  Index begin, end;  // bytes after the header
};

std::string shape_text(std::span<const Index> shape);  // (2, 3)

// Replaces the file atomically. The same arguments give the same bytes. Tensors of 8-byte elements come
// first, otherwise in the given order: loaders that map the file need aligned elements, and the format has no
// gaps. Adds `format` = pt, unless given, and `checksum`.
void write_safetensors(const Destination& to, std::span<const TensorView> tensors, const Metadata& metadata,
                       Keep keep = Keep::nothing);

// An open file with a valid header and, if it has one, a valid checksum. Errors: `[safetensors] path: ...`;
// Damaged, except for system errors and, of usage, a missing file.
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
