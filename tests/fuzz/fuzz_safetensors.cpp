// The reader of safetensors files: the tensors of what it accepts are the bytes of the file, and written anew
// they are read the same.
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "fuzz.h"
#include "io/safetensors.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {512 << 10, 256};  // read_file() begins with a chunk of 64 KiB

namespace {

const MemoryFile& memory_file() {
  static const MemoryFile file;
  return file;
}

std::string with_length(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(header).append(data);
}

std::string written(std::span<const TensorView> tensors, const Metadata& metadata) {
  const std::string path = "/dev/shm/fuzz_safetensors." + std::to_string(getpid());  // memory: cheap to sync
  write_safetensors(path, tensors, metadata);
  std::string bytes = read_file(path);
  unlink(path.c_str());
  return bytes;
}

// The tensor's elements, read as the type that its own can be read as, and whether they can at all.
template <class Number>
std::vector<Number> elements(const SafetensorsFile& file, const TensorInfo& tensor) {
  std::vector<Number> values(static_cast<std::size_t>(tensor.count));
  file.read_into(tensor.name, values.data(), tensor.count);
  return values;
}

void check_elements(const SafetensorsFile& file, const TensorInfo& tensor, std::string_view raw) {
  const auto same = [&](const auto& values) {
    const auto* bytes = reinterpret_cast<const char*>(values.data());  // null for an empty tensor
    expect(std::string_view(bytes, values.size() * sizeof values[0]) == raw, "a tensor is its bytes");
  };
  switch (tensor.dtype) {
    case Dtype::F32:
      return same(elements<float>(file, tensor));
    case Dtype::F64:
      return same(elements<double>(file, tensor));
    case Dtype::I64:
      return same(elements<std::int64_t>(file, tensor));
    case Dtype::BF16:
      for (const double value : elements<double>(file, tensor)) {
        expect(std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value,
               "a bf16 is a float");
      }
      return;
  }
}

void read_and_check(std::string_view bytes) {
  memory_file().set(bytes);
  const SafetensorsFile file(memory_file().path());
  const Index file_data_bytes = file.tensors().empty() ? 0 : file.tensors().back().end;
  const std::string_view data = bytes.substr(bytes.size() - static_cast<std::size_t>(file_data_bytes));

  Index data_bytes = 0;
  std::vector<TensorView> views;
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string_view raw = data.substr(static_cast<std::size_t>(tensor.begin),
                                             static_cast<std::size_t>(tensor.end - tensor.begin));
    check_elements(file, tensor, raw);
    views.push_back({tensor.name, tensor.dtype, tensor.shape, raw.data()});
    data_bytes += tensor.end - tensor.begin;
  }
  Metadata metadata = file.metadata();
  metadata.try_emplace("format", "pt");
  const std::string copy = written(views, metadata);
  memory_file().set(copy);
  const SafetensorsFile again(memory_file().path());
  metadata["checksum"] = again.metadata().at("checksum");
  expect(again.metadata() == metadata && again.tensors().size() == views.size(), "metadata comes back");
  for (std::size_t i = 0; i < views.size(); ++i) {
    const TensorInfo& tensor = again.at(views[i].name);
    expect(tensor.dtype == views[i].dtype && tensor.shape == views[i].shape, "a tensor comes back");
    const std::size_t at = copy.size() - static_cast<std::size_t>(data_bytes - tensor.begin);
    expect(std::memcmp(copy.data() + at, views[i].data,
                       static_cast<std::size_t>(tensor.end - tensor.begin)) == 0,
           "its bytes come back");
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
      with_length(
          R"({"__metadata__":{"k":"v\n"},"b":{"data_offsets":[8,12],"shape":[1,1],"dtype":"F32"},"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
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
