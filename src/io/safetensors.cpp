#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "io/safetensors_header.h"
#include "io/utf8.h"

namespace normscope {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are written and read as they lie in memory");

const std::string blank_checksum(16, ' ');
constexpr Index chunk_bytes = Index{1} << 18;  // of data in flight while hashing or converting

std::string_view bytes_of(const void* data, Index size) {
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

// Checks what a caller of the writer could get wrong, and lays the tensors out.
SafetensorsHeader plan(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata) {
  SafetensorsHeader header{metadata, {}};
  header.metadata.try_emplace("format", "pt");
  header.metadata["checksum"] = blank_checksum;
  std::set<std::string_view> names;
  Index end = 0;
  for (const TensorView& tensor : tensors) {
    const std::string where = escape_controls(path) + ": tensor `" + escape_controls(tensor.name) + "`: ";
    require(names.insert(tensor.name).second, "safetensors", where, "given twice");
    require(tensor.name != "__metadata__", "safetensors", where, "the name is reserved");
    Index count = 1, bytes = 0;
    for (const Index extent : tensor.shape) {
      require(extent >= 0 && !__builtin_mul_overflow(count, extent, &count), "safetensors", where,
              "the shape ", shape_text(tensor.shape), " is negative or too large");
    }
    require(!__builtin_mul_overflow(count, facts_of(tensor.dtype).bytes, &bytes) &&
                !__builtin_add_overflow(end, bytes, &end),
            "safetensors", where, "the shape ", shape_text(tensor.shape), " is too large");
    require(bytes == 0 || tensor.data != nullptr, "safetensors", where, "has no data");
    header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, count, end - bytes, end});
  }
  return header;
}

template <class Number>
constexpr bool can_read(Dtype dtype) {
  if constexpr (std::integral<Number>) return dtype == Dtype::I64;
  return dtype == Dtype::F32 || dtype == Dtype::F64 || dtype == Dtype::BF16;
}

// Element i of raw bytes (memcpy: a file's bytes need not be aligned).
template <class Stored>
Stored element(const char* bytes, Index i) {
  Stored value;
  std::memcpy(&value, bytes + i * static_cast<Index>(sizeof(Stored)), sizeof(Stored));
  return value;
}

template <class Number>
void convert(Dtype dtype, const char* bytes, Index count, Number* out) {
  const auto each = [&](auto stored) {
    for (Index i = 0; i < count; ++i) out[i] = static_cast<Number>(stored(i));
  };
  switch (dtype) {
    case Dtype::F32:
      return each([&](Index i) { return element<float>(bytes, i); });
    case Dtype::F64:
      return each([&](Index i) { return element<double>(bytes, i); });
    case Dtype::I64:
      return each([&](Index i) { return element<std::int64_t>(bytes, i); });
    case Dtype::BF16:  // the upper half of a float
      return each([&](Index i) {
        return std::bit_cast<float>(std::uint32_t{element<std::uint16_t>(bytes, i)} << 16);
      });
    default:
      fail("safetensors", facts_of(dtype).name, " cannot be read");  // can_read() said so before
  }
}

}  // namespace

std::string shape_text(std::span<const Index> shape) {
  std::string out = "(";
  for (const Index extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + ")";
}

void write_safetensors(const std::function<void(std::string_view)>& write, const std::string& path,
                       std::span<const TensorView> given, const Metadata& metadata) {
  std::vector<TensorView> tensors(given.begin(), given.end());
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const TensorView& tensor) { return facts_of(tensor.dtype).bytes == 8; });
  const SafetensorsHeader header = plan(path, tensors, metadata);
  std::string text_of_header;
  try {
    text_of_header = header_text(header);
  } catch (const nlohmann::json::exception&) {  // a C++ exception of JSON is no message for a user
    fail("safetensors", escape_controls(path), ": a name or a metadata value is not UTF-8");
  }
  require(std::ssize(text_of_header) <= largest_header, "safetensors", escape_controls(path),
          ": the header would have ", text_of_header.size(), " bytes; at most ", largest_header);

  std::uint64_t sum = fnv1a(text_of_header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sum = fnv1a(bytes_of(tensors[i].data, header.tensors[i].end - header.tensors[i].begin), sum);
  }
  text_of_header.replace(find_checksum(text_of_header, blank_checksum), blank_checksum.size(), hex(sum));

  const std::uint64_t length = text_of_header.size();
  write(bytes_of(&length, sizeof length));
  write(text_of_header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    write(bytes_of(tensors[i].data, header.tensors[i].end - header.tensors[i].begin));
  }
}

void write_safetensors(const std::string& path, std::span<const TensorView> tensors, const Metadata& metadata,
                       Keep keep) {
  AtomicFile file(path);
  write_safetensors([&](std::string_view piece) { file.write(piece); }, path, tensors, metadata);
  file.commit(keep);
}

template <class... Parts>
void SafetensorsFile::stop(const Parts&... what) const {
  fail_as_damaged("safetensors", escape_controls(path_), ": ", what...);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path),
      file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe must not block here
  struct stat status {};
  if (!file_.is_open() && errno == ENOENT) refuse("safetensors", escape_controls(path_), ": no such file");
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0) {
    fail("safetensors", escape_controls(path_), ": cannot be opened: ", errno_text());
  }
  if (!S_ISREG(status.st_mode)) stop("is not a file");

  const Index file_size = status.st_size;
  std::uint64_t length = 0;
  if (file_size < 8) stop("is no safetensors file: has ", file_size, " bytes; expected 8 at least");
  read(&length, 8, 0);
  if (length > static_cast<std::uint64_t>(largest_header)) {
    stop("is no safetensors file: claims a header of ", length, " bytes, more than ", largest_header);
  }
  data_begin_ = 8 + static_cast<Index>(length);
  data_size_ = file_size - data_begin_;
  if (data_size_ < 0)
    stop("the header needs ", length, " bytes; the file has ", file_size - 8, "; it is cut short");

  std::string header(length, '\0');
  read(header.data(), std::ssize(header), 8);
  SafetensorsHeader parsed = parse_header(header, data_size_, path_);
  metadata_ = std::move(parsed.metadata);
  tensors_ = std::move(parsed.tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
  if (has_checksum()) verify_checksum(std::move(header));
}

void SafetensorsFile::verify_checksum(std::string header) const {
  const std::string& digits = metadata_.at("checksum");
  const std::size_t place = find_checksum(header, digits);
  std::uint64_t sum = 0;
  if (place != header.npos) {
    sum = fnv1a(header.replace(place, digits.size(), blank_checksum));
    std::string chunk(static_cast<std::size_t>(std::min(chunk_bytes, data_size_)), '\0');
    for (Index at = 0; at < data_size_; at += chunk_bytes) {
      const Index size = std::min(chunk_bytes, data_size_ - at);
      read(chunk.data(), size, data_begin_ + at);
      sum = fnv1a(bytes_of(chunk.data(), size), sum);
    }
  }
  if (place == header.npos || hex(sum) != digits) {
    stop(
        "the checksum does not match; the file is damaged, or was changed by a program that kept the old "
        "checksum");
  }
}

void SafetensorsFile::read(void* out, Index size, Index offset) const {
  const Index got = read_at(file_.get(), out, size, offset);
  if (got < 0) fail("safetensors", escape_controls(path_), ": cannot be read: ", errno_text());
  if (got < size) stop("became shorter while it was read");
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (!tensor) stop("no tensor `", escape_controls(name), "`");
  return *tensor;
}

template <class Number>
void SafetensorsFile::read_into(std::string_view name, Number* out, Index count) const {
  const TensorInfo& tensor = at(name);
  const DtypeFacts& stored = facts_of(tensor.dtype);
  if (!can_read<Number>(tensor.dtype)) {
    stop("tensor `", escape_controls(name), "` is ", stored.name, "; expected ",
         std::integral<Number> ? "I64" : "F32, F64 or BF16");
  }
  if (tensor.count != count) {
    stop("tensor `", escape_controls(name), "` has ", tensor.count, " elements ", shape_text(tensor.shape),
         "; expected ", count);
  }
  const Index at_once = chunk_bytes / stored.bytes;
  std::string chunk(static_cast<std::size_t>(std::min(at_once, count) * stored.bytes), '\0');
  for (Index i = 0; i < count; i += at_once) {
    const Index n = std::min(at_once, count - i);
    read(chunk.data(), n * stored.bytes, data_begin_ + tensor.begin + i * stored.bytes);
    convert(tensor.dtype, chunk.data(), n, out + i);
  }
}

template void SafetensorsFile::read_into(std::string_view, float*, Index) const;
template void SafetensorsFile::read_into(std::string_view, double*, Index) const;
template void SafetensorsFile::read_into(std::string_view, std::int64_t*, Index) const;

}  // namespace normscope
