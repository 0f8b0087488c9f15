#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>

#include "core/random.h"
#include "io/utf8.h"

namespace normscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the file has the byte order of memory");

using nlohmann::json;

constexpr std::string_view metadata_name = "__metadata__";
constexpr JsonLimits header_limits = {.bytes = 100'000'000, .depth = 4, .comments = false};

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  Index bytes;  // per element
};
constexpr DtypeRow dtypes[] = {
    {Dtype::F32, "F32", 4}, {Dtype::F64, "F64", 8}, {Dtype::BF16, "BF16", 2}, {Dtype::I64, "I64", 8}};

const DtypeRow& row_of(Dtype dtype) { return *std::ranges::find(dtypes, dtype, &DtypeRow::dtype); }

// The number of elements; nullopt if an extent is negative or the bytes overflow.
std::optional<Index> element_count(std::span<const Index> shape) {
  Index count = 1, bytes = 0;
  for (const Index extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  return __builtin_mul_overflow(count, Index{8}, &bytes) ? std::nullopt : std::optional(count);
}

std::optional<std::vector<Index>> sizes_in(const json& entry, const char* key) {
  const auto list = entry.find(key);
  if (list == entry.end() || !list->is_array()) return std::nullopt;
  std::vector<Index> sizes;
  for (const json& written : *list) {
    const std::optional<Index> size = written.is_number_unsigned() ? whole_number(written) : std::nullopt;
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

// A tensor's name in a message, cut because the header may be 100 MB long.
std::string tensor_text(std::string_view name) {
  return "tensor `" + escape_controls(name.substr(0, 100)) + "`";
}

std::string_view bytes_of(const TensorView& tensor) {
  const Index bytes = *element_count(tensor.shape) * row_of(tensor.dtype).bytes;
  return std::string_view(static_cast<const char*>(tensor.data), bytes);
}

// The header, padded with spaces so that the data begins at a multiple of 8.
std::string header_text(const std::string& path, std::span<const TensorView> tensors,
                        const Metadata& metadata) {
  std::string text = "{" + json(metadata_name).dump() + ":" + json(metadata).dump();
  std::set<std::string_view> names;
  Index end = 0;
  for (const TensorView& tensor : tensors) {
    require(names.insert(tensor.name).second, "safetensors", escape_controls(path), ": ",
            tensor_text(tensor.name), ": given twice");
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

template <class Number>
void convert(Dtype dtype, const char* bytes, Index count, Number* out) {
  switch (dtype) {
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

}  // namespace

std::string shape_text(std::span<const Index> shape) {
  std::string out = "(";
  for (const Index extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + ")";
}

void write_safetensors(const std::string& path, std::span<const TensorView> given,
                       const Metadata& given_metadata) {
  std::vector<TensorView> tensors(given.begin(), given.end());
  std::ranges::stable_partition(tensors,
                                [](const TensorView& tensor) { return row_of(tensor.dtype).bytes == 8; });
  std::uint64_t sum = fnv1a_basis;
  for (const TensorView& tensor : tensors) sum = fnv1a(bytes_of(tensor), sum);
  Metadata metadata = given_metadata;
  metadata.try_emplace("format", "pt");
  metadata["checksum"] = hex(sum);
  const std::string header = header_text(path, tensors, metadata);

  AtomicFile file(path);
  const std::uint64_t length = header.size();
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  for (const TensorView& tensor : tensors) file.write(bytes_of(tensor));
  file.commit();
}

template <class... Parts>
void SafetensorsFile::fail_damaged(const Parts&... what) const {
  fail("safetensors", escape_controls(path_), ": ", what...);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) refuse("safetensors", escape_controls(path), ": no such file");
  bytes_ = read_file(path, {.where = "safetensors"});
  std::uint64_t length = 0;
  if (bytes_.size() < sizeof length)
    fail_damaged("is no safetensors file: has ", bytes_.size(), " bytes; expected 8 at least");
  std::memcpy(&length, bytes_.data(), sizeof length);
  const std::string_view rest = std::string_view(bytes_).substr(sizeof length);
  if (length > header_limits.bytes)
    fail_damaged("is no safetensors file: the header would have ", length, " bytes");
  if (length > rest.size())
    fail_damaged("the header needs ", length, " bytes; the file has ", rest.size(), "; it is cut short");
  data_ = rest.substr(length);
  json header;
  try {
    header = parse_json<json>(rest.substr(0, length), path + ": header", "safetensors", header_limits);
  } catch (const Error& error) {
    throw Error(Exit::failure, error.what());
  }
  read_header(header);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
  if (has_checksum() && metadata_.at("checksum") != hex(fnv1a(data_)))
    fail_damaged("the checksum does not match; the file is damaged, or was changed by a program that kept ",
                 "the old checksum");
}

// Checks that the tensors fill the data without gap or overlap.
void SafetensorsFile::read_header(const json& header) {
  if (!header.is_object()) fail_damaged("is no safetensors file: the header is not a JSON object");
  for (const auto& [name, entry] : header.items()) {
    if (name != metadata_name) {
      tensors_.push_back(read_tensor(name, entry));
      continue;
    }
    const auto is_string = [](const json& value) { return value.is_string(); };
    if (!entry.is_object() || !std::ranges::all_of(entry, is_string))
      fail_damaged("metadata: got ", quote(entry), "; expected strings by name");
    metadata_ = entry.get<Metadata>();
  }
  std::ranges::sort(tensors_, {}, [](const TensorInfo& t) { return std::tie(t.begin, t.end, t.name); });
  Index filled = 0;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.begin != filled)
      fail_damaged(tensor_text(tensor.name), " begins at byte ", tensor.begin, " of the data; expected ",
                   filled);
    filled = tensor.end;
  }
  if (filled != std::ssize(data_))
    fail_damaged("the tensors end at byte ", filled, " of ", data_.size(), " bytes of data");
}

// Reads a tensor's entry in the header and checks that its sizes fit its offsets.
TensorInfo SafetensorsFile::read_tensor(const std::string& name, const json& entry) const {
  const auto fail_here = [&](const auto&... what) { fail_damaged(tensor_text(name), ": ", what...); };
  const auto shape = sizes_in(entry, "shape"), offsets = sizes_in(entry, "data_offsets");
  if (!shape || !offsets || offsets->size() != 2 || !entry.contains("dtype"))
    fail_here("got ", quote(entry),
              R"(; expected {"dtype": NAME, "shape": [SIZE, ...], "data_offsets": [BEGIN, END]})");
  const auto row = std::ranges::find_if(dtypes, [&](const DtypeRow& r) { return entry["dtype"] == r.name; });
  if (row == std::end(dtypes))
    fail_here("has the dtype ", quote(entry["dtype"]), "; expected F32, F64, BF16 or I64");
  const Index begin = (*offsets)[0], end = (*offsets)[1];
  if (end > std::ssize(data_))
    fail_here("ends at byte ", end, " of ", data_.size(), "; the file is cut short");
  const std::optional<Index> count = element_count(*shape);
  if (!count || begin > end || *count * row->bytes != end - begin)
    fail_here(row->name, " ", shape_text(*shape), " does not fit its data_offsets, ", begin, " to ", end);
  return {name, row->dtype, *shape, *count, begin, end};
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (!tensor) fail_damaged("no ", tensor_text(name));
  return *tensor;
}

template <class Number>
void SafetensorsFile::read_into(std::string_view name, Number* out, Index count) const {
  const TensorInfo& tensor = at(name);
  if ((tensor.dtype == Dtype::I64) != std::integral<Number>)
    fail_damaged(tensor_text(name), " is ", row_of(tensor.dtype).name, "; expected ",
                 std::integral<Number> ? "I64" : "F32, F64 or BF16");
  if (tensor.count != count)
    fail_damaged(tensor_text(name), " has ", tensor.count, " elements ", shape_text(tensor.shape),
                 "; expected ", count);
  convert(tensor.dtype, data_.data() + tensor.begin, count, out);
}

template void SafetensorsFile::read_into(std::string_view, float*, Index) const;
template void SafetensorsFile::read_into(std::string_view, double*, Index) const;
template void SafetensorsFile::read_into(std::string_view, std::int64_t*, Index) const;

}  // namespace normscope
