#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <fstream>

#include "core/random.h"

namespace normscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the file has the byte order of memory");

using nlohmann::json;

constexpr const char* metadata_name = "__metadata__";
constexpr const char* checksum_name = "checksum";
constexpr std::size_t sum_digits = 16;  // of the data's checksum, and of the header's

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  Index bytes;  // per element
};
constexpr DtypeRow dtypes[] = {
    {Dtype::F32, "F32", 4}, {Dtype::F64, "F64", 8}, {Dtype::BF16, "BF16", 2}, {Dtype::I64, "I64", 8}};

const DtypeRow& row_of(Dtype dtype) { return *std::ranges::find(dtypes, dtype, &DtypeRow::dtype); }

// The bytes of a tensor; nullopt if 64 bits do not hold the number.
std::optional<Index> size_of(std::span<const Index> shape, Dtype dtype) {
  Index bytes = row_of(dtype).bytes;
  for (const Index extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string_view bytes_of(const TensorView& tensor) {
  return {static_cast<const char*>(tensor.data),
          static_cast<std::size_t>(*size_of(tensor.shape, tensor.dtype))};
}

// The header, padded with spaces so that the data begins at a multiple of 8.
std::string header_text(std::span<const TensorView> tensors, const Metadata& metadata) {
  std::string text = "{" + json(metadata_name).dump() + ":" + json(metadata).dump();
  Index end = 0;
  for (const TensorView& tensor : tensors) {
    const Index begin = end;
    end += std::ssize(bytes_of(tensor));
    const Json entry = {
        {"dtype", row_of(tensor.dtype).name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    text += "," + json(tensor.name).dump() + ":" + entry.dump();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// A list of whole numbers from 0; nullopt: something else.
std::optional<std::vector<Index>> sizes_in(const json& entry, const char* key) {
  const auto list = entry.find(key);
  if (list == entry.end() || !list->is_array()) return std::nullopt;
  std::vector<Index> sizes;
  for (const json& item : *list) {
    const std::optional<Index> size = item.is_number_unsigned() ? whole_number(item) : std::nullopt;
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

// The header's checksum; `checksum` is the file's, or has other digits than zeros behind the data's.
std::string header_sum(std::string header, const std::string& checksum) {
  const std::size_t begin = header.find(checksum);
  if (begin == header.npos) return "";  // it is written with escapes
  return hex(fnv1a(header.replace(begin + sum_digits, sum_digits, sum_digits, '0')));
}

[[noreturn]] void refuse_checksum(const std::string& path, const char* part) {
  fail("safetensors", path, ": the checksum of the ", part, " does not match; the file is damaged, or was ",
       "changed by a program that kept the old checksum");
}

// The metadata in a file's header, given as text and as JSON. Error: the header is no object, its metadata
// are no strings, or its checksum is wrong.
Metadata metadata_in(const std::string& header_text, const json& header, const std::string& path) {
  require(header.is_object(), "safetensors", path,
          ": is no safetensors file: the header is not a JSON object");
  const auto entry = header.find(metadata_name);
  if (entry == header.end()) return {};
  const auto is_string = [](const json& value) { return value.is_string(); };
  require(entry->is_object() && std::ranges::all_of(*entry, is_string), "safetensors", path,
          ": metadata: got ", quote(*entry), "; expected an object of strings");
  const Metadata metadata = entry->get<Metadata>();
  const auto checksum = metadata.find(checksum_name);
  if (checksum != metadata.end() && checksum->second.size() == 2 * sum_digits &&
      header_sum(header_text, checksum->second) != checksum->second.substr(sum_digits))
    refuse_checksum(path, "header");
  return metadata;
}

struct Bf16 {
  std::uint16_t bits;  // the upper half of a float's
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <class Stored, class Number>
void convert(const char* bytes, Index count, Number* out) {
  for (Index i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);  // a file's bytes need not be aligned
    out[i] = static_cast<Number>(value);
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorView> given, Metadata metadata) {
  std::vector<TensorView> tensors(given.begin(), given.end());
  std::ranges::stable_partition(tensors, [](const TensorView& t) { return row_of(t.dtype).bytes == 8; });
  std::vector<std::string_view> pieces(2);
  std::uint64_t sum = fnv1a_basis;
  for (const TensorView& tensor : tensors) {
    pieces.push_back(bytes_of(tensor));
    sum = fnv1a(pieces.back(), sum);
  }
  metadata.try_emplace("format", "pt");
  const std::string checksum = hex(sum) + std::string(sum_digits, '0');
  metadata[checksum_name] = checksum;
  std::string header = header_text(tensors, metadata);
  header.replace(header.find(checksum) + sum_digits, sum_digits, header_sum(header, checksum));
  const std::uint64_t length = header.size();
  pieces[0] = {reinterpret_cast<const char*>(&length), sizeof length};
  pieces[1] = header;
  write_atomically(path, pieces);
}

Metadata read_metadata(const std::string& path) {
  constexpr std::uint64_t max_header = 100'000'000;  // the format's own limit
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "safetensors", path, ": cannot be opened: ", errno_text());
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(file && length <= max_header ? length : 0, ' ');
  file.read(header.data(), std::ssize(header));
  require(file && !header.empty(), "safetensors", path, ": is no safetensors file, or is cut short");
  return metadata_in(header, parse_json<json>(header, path + ": header", "safetensors", Exit::failure), path);
}

std::string checksum_note(const Metadata& metadata) {
  return metadata.contains(checksum_name) ? "" : " (it has no checksum that could show damage)";
}

template <class... Parts>
void SafetensorsFile::stop(const Parts&... what) const {
  fail("safetensors", path_, ": ", what...);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), bytes_(read_file(path, "safetensors")) {
  std::uint64_t length = 0;
  if (bytes_.size() < sizeof length) stop("is no safetensors file: has ", bytes_.size(), " bytes");
  std::memcpy(&length, bytes_.data(), sizeof length);
  const std::string_view rest = std::string_view(bytes_).substr(sizeof length);
  if (length > rest.size())
    stop("is no safetensors file: a header of ", length, " bytes does not fit its ", bytes_.size(),
         "; or it is cut short");
  data_ = rest.substr(length);
  const std::string header(rest.substr(0, length));
  const json entries = parse_json<json>(header, path + ": header", "safetensors", Exit::failure);
  metadata_ = metadata_in(header, entries, path);
  read_tensors(entries);
  const auto checksum = metadata_.find(checksum_name);
  if (checksum != metadata_.end() && checksum->second.substr(0, sum_digits) != hex(fnv1a(data_)))
    refuse_checksum(path, "data");
}

// Checks that the tensors fill the data without gap or overlap.
void SafetensorsFile::read_tensors(const json& header) {
  std::vector<std::pair<Index, Index>> ranges;  // of bytes, begin and end
  for (const auto& [name, entry] : header.items()) {
    if (name == metadata_name) continue;
    const TensorInfo& tensor = tensors_[name] = read_tensor(name, entry);
    if (tensor.count > 0) ranges.emplace_back(tensor.begin, tensor.end);
  }
  std::ranges::sort(ranges);
  Index filled = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != filled)
      stop("a tensor begins at byte ", begin, " of the data; expected ", filled, "; the file is damaged");
    filled = end;
  }
  if (filled != std::ssize(data_))
    stop("the tensors have ", filled, " bytes, the file ", data_.size(), "; it is damaged or cut short");
}

// Reads a tensor's entry in the header and checks its sizes against its offsets, and these against the file.
TensorInfo SafetensorsFile::read_tensor(const std::string& name, const json& entry) const {
  const auto shape = sizes_in(entry, "shape"), offsets = sizes_in(entry, "data_offsets");
  const json dtype = entry.is_object() ? entry.value("dtype", json()) : json();
  const auto row = std::ranges::find_if(dtypes, [&](const DtypeRow& r) { return dtype == r.name; });
  if (!shape || !offsets || offsets->size() != 2 || row == std::end(dtypes))
    stop("tensor ", quote(name), ": got ", quote(entry), "; expected a shape, data_offsets [BEGIN, END] and ",
         "the dtype F32, F64, BF16 or I64");
  const Index begin = offsets->front(), end = offsets->back();
  if (begin > end || end > std::ssize(data_) || size_of(*shape, row->dtype) != end - begin)
    stop("tensor ", quote(name), ": ", row->name, ' ', quote(*shape), " does not fit bytes ", begin, " to ",
         end, " of ", data_.size(), "; the file is damaged or cut short");
  return {row->dtype, *shape, (end - begin) / row->bytes, begin, end};
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) stop("no tensor ", quote(name));
  return found->second;
}

template <class Number>
void SafetensorsFile::read_into(std::string_view name, Number* out, Index count) const {
  const TensorInfo& tensor = at(name);
  if ((tensor.dtype == Dtype::I64) != std::integral<Number> || tensor.count != count)
    stop("tensor ", quote(name), " is ", row_of(tensor.dtype).name, ' ', quote(tensor.shape), "; expected ",
         count, std::integral<Number> ? " I64 numbers" : " numbers of F32, F64 or BF16");
  const char* bytes = data_.data() + tensor.begin;
  switch (tensor.dtype) {
    case Dtype::F32:
      return convert<float>(bytes, count, out);
    case Dtype::F64:
      return convert<double>(bytes, count, out);
    case Dtype::BF16:
      return convert<Bf16>(bytes, count, out);
    case Dtype::I64:
      return convert<std::int64_t>(bytes, count, out);
  }
}

template void SafetensorsFile::read_into(std::string_view, float*, Index) const;
template void SafetensorsFile::read_into(std::string_view, double*, Index) const;
template void SafetensorsFile::read_into(std::string_view, std::int64_t*, Index) const;

}  // namespace normscope
