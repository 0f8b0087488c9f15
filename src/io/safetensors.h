// safetensors files: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
//
// `__metadata__.checksum` holds 32 lower-case hex digits: the FNV-1a 64 of the data, then that of the header
// with zeros in the place of these last 16 digits. A file may have the first 16 alone, or no checksum.
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
  Dtype dtype;
  std::vector<Index> shape;
  Index count;       // elements
  Index begin, end;  // bytes after the header
};

// Replaces the file atomically. The same arguments give the same bytes. Tensors of 8-byte elements come
// first, otherwise in the given order: loaders that map the file need aligned elements, and the format has no
// gaps. Names must differ. Adds `format` = pt, unless given, and `checksum`.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors, Metadata metadata);

// The metadata of a file. Reads only its header. Errors: those of a SafetensorsFile with that header.
Metadata read_metadata(const std::string& path);

// "" or, for a file without a checksum, a note on that, to follow its path.
std::string checksum_note(const Metadata& metadata);
inline std::string checksum_note(const std::string& path) { return checksum_note(read_metadata(path)); }

// A file with a valid header and, if it has one, a valid checksum, read whole. Errors: `[safetensors] path:
// ...`; of usage for a missing file.
class SafetensorsFile {
 public:
  using Tensors = std::map<std::string, TensorInfo, std::less<>>;  // by name

  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(const SafetensorsFile&) = delete;  // data_ points into bytes_
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  const Tensors& tensors() const { return tensors_; }
  const TensorInfo& at(std::string_view name) const;  // Error if there is none

  // Reads a tensor of exactly `count` elements. float and double take F32, F64 and BF16; int64 takes I64.
  template <class Number>
  void read_into(std::string_view name, Number* out, Index count) const;

 private:
  void read_tensors(const nlohmann::json& header);
  TensorInfo read_tensor(const std::string& name, const nlohmann::json& entry) const;
  template <class... Parts>
  [[noreturn]] void stop(const Parts&... what) const;

  std::string path_, bytes_;
  std::string_view data_;  // of bytes_, after the header
  Metadata metadata_;
  Tensors tensors_;
};

}  // namespace normscope
