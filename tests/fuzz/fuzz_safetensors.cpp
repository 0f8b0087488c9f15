// The reader of safetensors files: the tensors of what it accepts are the bytes of the file, and written anew
// they are read the same.
#include <cstring>

#include "core/error.h"
#include "fuzz.h"
#include "io/safetensors.h"

namespace normscope::fuzz {

namespace {

std::string with_length(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(header).append(data);
}

std::string written(std::span<const TensorView> tensors, const Metadata& metadata) {
  const std::string path = file_with("");
  write_safetensors(path, tensors, metadata);
  return read_file(path);
}

template <class Number>
void check_same(const SafetensorsFile& file, const std::string& name, std::string_view raw) {
  std::vector<Number> values(raw.size() / sizeof(Number));
  file.read_into(name, values.data(), std::ssize(values));
  const auto* bytes = reinterpret_cast<const char*>(values.data());  // null for an empty tensor
  expect(std::string_view(bytes, raw.size()) == raw, "a tensor is its bytes");
}

void check_elements(const SafetensorsFile& file, const std::string& name, std::string_view raw) {
  switch (file.at(name).dtype) {
    case Dtype::F32:
      return check_same<float>(file, name, raw);
    case Dtype::F64:
      return check_same<double>(file, name, raw);
    case Dtype::I64:
      return check_same<std::int64_t>(file, name, raw);
    case Dtype::BF16:
      std::vector<float> values(raw.size() / 2);
      file.read_into(name, values.data(), std::ssize(values));
  }
}

// A tensor's bytes in a file that ends with `data_bytes` of data.
std::string_view bytes_in(std::string_view file, Index data_bytes, const TensorInfo& tensor) {
  const std::string_view data = file.substr(file.size() - static_cast<std::size_t>(data_bytes));
  return data.substr(static_cast<std::size_t>(tensor.begin),
                     static_cast<std::size_t>(tensor.end - tensor.begin));
}

void read_and_check(std::string_view bytes) {
  const SafetensorsFile file(file_with(bytes));
  Index data_bytes = 0;
  for (const auto& [name, tensor] : file.tensors()) data_bytes += tensor.end - tensor.begin;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : file.tensors()) {
    const std::string_view raw = bytes_in(bytes, data_bytes, tensor);
    check_elements(file, name, raw);
    views.push_back({name, tensor.dtype, tensor.shape, raw.data()});
  }
  Metadata metadata = file.metadata();
  metadata.try_emplace("format", "pt");
  const std::string copy = written(views, metadata);
  const SafetensorsFile again(file_with(copy));
  metadata["checksum"] = again.metadata().at("checksum");
  expect(again.metadata() == metadata && again.tensors().size() == views.size(), "metadata comes back");
  for (const auto& [name, tensor] : file.tensors()) {
    const TensorInfo& other = again.at(name);
    expect(other.dtype == tensor.dtype && other.shape == tensor.shape, "a tensor comes back");
    expect(bytes_in(copy, data_bytes, other) == bytes_in(bytes, data_bytes, tensor), "its bytes come back");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  const float weights[4] = {1, -2.5f, 0, 1e-30f};
  const std::int64_t tokens[1] = {-1};
  const TensorView views[] = {{"w", Dtype::F32, {2, 2}, weights},
                              {"t", Dtype::I64, {1}, tokens},
                              {"none", Dtype::F32, {0, 3}, nullptr}};
  return {
      written(views, {{"step", "7"}}), with_length("{}", ""),
      with_length(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}} )",
                  std::string_view("\x80\x3f\0\0", 4)),
      with_length(R"({"__metadata__":{"k":"v\n"},"b":{"data_offsets":[8,12],"shape":[1,1],"dtype":"F32"},)"
                  R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
                  "12345678abcd")};
}

// A change of the header's size makes the length before it wrong, and hardly an input would be read further:
// so the bytes are also read with the length that its last brace gives.
void run(std::string_view bytes) {
  const std::size_t brace = bytes.rfind('}');
  if (bytes.size() > 8 && brace != bytes.npos && brace >= 8) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length >= bytes.size() - 8) {
      return read_and_check(with_length(bytes.substr(8, brace - 7), bytes.substr(brace + 1)));
    }
  }
  read_and_check(bytes);
}

}  // namespace normscope::fuzz
