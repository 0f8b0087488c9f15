// safetensors files: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
//
// `__metadata__.checksum` holds 16 lower-case hex digits: the FNV-1a 64 of the data, without the header.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "io/file.h"
#include "io/json.h"

namespace normscope {

enum class Dtype { F32, F64, BF16, I64 };

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
  std::vector<Index> shape;
  Index count;       // elements
  Index begin, end;  // bytes after the header
};

std::string shape_text(std::span<const Index> shape);  // (2, 3)

// Replaces the file atomically. The same arguments give the same bytes. Tensors of 8-byte elements come
// first, otherwise in the given order: loaders that map the file need aligned elements, and the format has no
// gaps. Adds `format` = pt, unless given, and `checksum`.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata);

// A file with a valid header and, if it has one, a valid checksum, read whole. Errors: `[safetensors] path:
// ...`; of usage for a missing file.
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
  void read_header(const nlohmann::json& header);
  TensorInfo read_tensor(const std::string& name, const nlohmann::json& entry) const;
  template <class... Parts>
  [[noreturn]] void fail_damaged(const Parts&... what) const;

  std::string path_, bytes_;
  std::string_view data_;  // of bytes_, after the header
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace normscope
