#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/hash.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the file has the byte order of memory");

using nlohmann::json;

constexpr std::string_view metadata_name = "__metadata__";
const std::string blank_checksum(16, ' ');
constexpr Index chunk_bytes = Index{1} << 18;          // of data in flight while hashing or converting
constexpr std::size_t max_header_bytes = 100'000'000;  // as in the reference implementation
// An object of tensors, each with lists. The limits bound the memory that a damaged header can take.
constexpr JsonLimits header_limits = {
    .bytes = max_header_bytes, .depth = 3, .list_entries = 64, .comments = false};

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  Index bytes;  // of one element
};
constexpr DtypeRow dtypes[] = {
    {Dtype::F32, "F32", 4}, {Dtype::F64, "F64", 8}, {Dtype::BF16, "BF16", 2}, {Dtype::I64, "I64", 8}};

const DtypeRow& row_of(Dtype dtype) {
  const auto row = std::ranges::find(dtypes, dtype, &DtypeRow::dtype);
  require(row != std::end(dtypes), "safetensors", "a dtype of no size");
  return *row;
}

// The number of elements; nullopt if an extent is negative or the bytes overflow, also for the other extents
// of an empty tensor such as (2^40, 2^40, 0).
std::optional<Index> element_count(std::span<const Index> shape) {
  constexpr Index max_element_bytes = 8;
  Index bytes = max_element_bytes;
  bool empty = false;
  for (const Index extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, std::max<Index>(extent, 1), &bytes)) return std::nullopt;
    empty = empty || extent == 0;
  }
  return empty ? 0 : bytes / max_element_bytes;
}

// Whether a tensor's entry in the header has exactly the members and types of the format.
bool is_well_formed(const json& entry) {
  const auto has_sizes = [&](const char* key) {
    const auto list = entry.find(key);
    return list != entry.end() && list->is_array() && std::ranges::all_of(*list, [](const json& n) {
             return n.is_number_unsigned() && whole_number(n);
           });
  };
  return entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry["dtype"].is_string() &&
         has_sizes("shape") && has_sizes("data_offsets") && entry["data_offsets"].size() == 2;
}

// A tensor's name in a message, cut because the header may be 100 MB long.
std::string tensor_text(std::string_view name) {
  return "tensor `" + escape_controls(name.substr(0, 100)) + "`";
}

std::string_view bytes_of(const void* data, Index size) {
  return std::string_view(static_cast<const char*>(data), size);
}

Index byte_count(const TensorView& tensor) {
  return *element_count(tensor.shape) * row_of(tensor.dtype).bytes;
}

// The header, padded with spaces so that the data begins at a multiple of 8. Errors: wrong arguments of the
// writer.
std::string header_text(const std::string& path, std::span<const TensorView> tensors,
                        const Metadata& metadata) {
  std::string out = text("{\"", metadata_name, "\":", json_line(metadata));
  std::set<std::string_view> names;
  Index end = 0;
  for (const TensorView& tensor : tensors) {
    const auto check = [&](bool holds, const char* what) {
      require(holds, "safetensors", escape_controls(path), ": ", tensor_text(tensor.name), " ",
              shape_text(tensor.shape), ": ", what);
    };
    check(names.insert(tensor.name).second, "given twice");
    check(tensor.name != metadata_name, "the name is reserved");
    check(element_count(tensor.shape).has_value(), "the shape is negative or too large");
    check(byte_count(tensor) == 0 || tensor.data != nullptr, "has no data");
    const Index begin = end;
    end += byte_count(tensor);
    const nlohmann::ordered_json entry = {
        {"dtype", row_of(tensor.dtype).name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    out += "," + json_line(tensor.name) + ":" + json_line(entry);
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

// The place of the checksum's 16 digits in the header; npos if they are not there.
std::size_t find_checksum(std::string_view header, std::string_view digits) {
  constexpr std::string_view before = R"("checksum":")";
  const std::size_t found = header.find(std::string(before) + std::string(digits) + '"');
  return digits.size() == 16 && found != header.npos ? found + before.size() : header.npos;
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
    case Dtype::unknown:
      fail("safetensors", "elements of an unknown dtype cannot be read");
  }
}

}  // namespace

std::string shape_text(std::span<const Index> shape) {
  std::string out = "(";
  for (const Index extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + ")";
}

void write_safetensors(const Destination& to, std::span<const TensorView> given,
                       const Metadata& given_metadata, Keep keep) {
  std::vector<TensorView> tensors(given.begin(), given.end());
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const TensorView& tensor) { return row_of(tensor.dtype).bytes == 8; });
  Metadata metadata = given_metadata;
  metadata.try_emplace("format", "pt");
  metadata["checksum"] = blank_checksum;
  std::string header;
  try {
    header = header_text(to.path, tensors, metadata);
  } catch (const json::exception&) {
    fail("safetensors", escape_controls(to.path), ": a name or a metadata value is not UTF-8");
  }
  require(header.size() <= max_header_bytes, "safetensors", escape_controls(to.path),
          ": the header would have ", header.size(), " bytes; at most ", max_header_bytes);

  const auto data = [](const TensorView& tensor) { return bytes_of(tensor.data, byte_count(tensor)); };
  std::uint64_t sum = fnv1a(header);
  for (const TensorView& tensor : tensors) sum = fnv1a(data(tensor), sum);
  header.replace(find_checksum(header, blank_checksum), blank_checksum.size(), hex(sum));

  AtomicFile file(to);
  const std::uint64_t length = header.size();
  file.write(bytes_of(&length, sizeof length));
  file.write(header);
  for (const TensorView& tensor : tensors) file.write(data(tensor));
  file.commit(keep);
}

template <class... Parts>
void SafetensorsFile::fail_damaged(const Parts&... what) const {
  fail_as_damaged("safetensors", escape_controls(path_), ": ", what...);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path, O_RDONLY | O_NONBLOCK) {  // a pipe must not block here
  struct stat status {};
  if (!file_.is_open() && errno == ENOENT) refuse("safetensors", escape_controls(path_), ": no such file");
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0)
    fail("safetensors", escape_controls(path_), ": cannot be opened: ", errno_text());
  if (!S_ISREG(status.st_mode)) fail_damaged("is not a file");

  const Index file_size = status.st_size;
  std::uint64_t length = 0;
  if (file_size < 8) fail_damaged("is no safetensors file: has ", file_size, " bytes; expected 8 at least");
  read(&length, 8, 0);
  if (length > max_header_bytes)
    fail_damaged("is no safetensors file: claims a header of ", length, " bytes, more than ",
                 max_header_bytes);
  data_begin_ = 8 + static_cast<Index>(length);
  data_size_ = file_size - data_begin_;
  if (data_size_ < 0)
    fail_damaged("the header needs ", length, " bytes; the file has ", file_size - 8, "; it is cut short");

  std::string header(length, '\0');
  read(header.data(), std::ssize(header), 8);
  read_header(header);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
  if (has_checksum()) verify_checksum(std::move(header));
}

// Checks all of it: the header must be JSON of exactly the right form, and the tensors must fill the data
// without gap or overlap.
void SafetensorsFile::read_header(const std::string& header) {
  if (!header.starts_with('{')) fail_damaged("is no safetensors file: the header is not a JSON object");
  const auto parse = [&] {
    try {
      return JsonDocument::parse(header, path_ + ": header", "safetensors", header_limits);
    } catch (const Error& error) {
      throw Damaged(error.what());
    }
  };
  const JsonDocument document = parse();
  for (const auto& [name, entry] : document.root().items()) {
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
      fail_damaged(tensor_text(tensor.name), " begins at byte ", tensor.begin, " of the data, ",
                   tensor.begin < filled ? "inside" : "after a gap behind", " the tensor that ends at ",
                   filled);
    filled = tensor.end;
  }
  if (filled != data_size_)
    fail_damaged("the tensors end at byte ", filled, " of ", data_size_, " bytes of data");
}

// Reads a tensor's entry in the header and checks that its sizes fit its offsets.
TensorInfo SafetensorsFile::read_tensor(const std::string& name, const json& entry) const {
  const auto fail_here = [&](const auto&... what) { fail_damaged(tensor_text(name), ": ", what...); };
  if (!is_well_formed(entry))
    fail_here("got ", quote(entry),
              R"(; expected {"dtype": NAME, "shape": [SIZE, ...], "data_offsets": [BEGIN, END]})");
  const std::string dtype = entry["dtype"];
  const std::vector<Index> shape = entry["shape"];
  const Index begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
  if (begin > end) fail_here("data_offsets end (", end, ") before they begin (", begin, ")");
  if (end > data_size_) fail_here("ends at byte ", end, " of ", data_size_, "; the file is cut short");
  const std::optional<Index> count = element_count(shape);
  if (!count) fail_here("the shape ", shape_text(shape), " is too large");
  const auto row = std::ranges::find(dtypes, dtype, &DtypeRow::name);
  if (row == std::end(dtypes)) return {name, Dtype::unknown, dtype, shape, *count, begin, end};
  if (*count * row->bytes != end - begin)
    fail_here(row->name, " ", shape_text(shape), " needs ", *count * row->bytes, " bytes; data_offsets give ",
              end - begin);
  return {name, row->dtype, dtype, shape, *count, begin, end};
}

void SafetensorsFile::verify_checksum(std::string header) const {
  const std::string& digits = metadata_.at("checksum");
  const std::size_t place = find_checksum(header, digits);
  std::uint64_t sum = 0;
  if (place != header.npos) {
    sum = fnv1a(header.replace(place, digits.size(), blank_checksum));
    std::string chunk(std::min(chunk_bytes, data_size_), '\0');
    for (Index at = 0; at < data_size_; at += chunk_bytes) {
      const Index size = std::min(chunk_bytes, data_size_ - at);
      read(chunk.data(), size, data_begin_ + at);
      sum = fnv1a(bytes_of(chunk.data(), size), sum);
    }
  }
  if (place == header.npos || hex(sum) != digits)
    fail_damaged("the checksum does not match; the file is damaged, or was changed by a program that kept ",
                 "the old checksum");
}

void SafetensorsFile::read(void* out, Index size, Index offset) const {
  const Index got = read_at(file_.get(), out, size, offset);
  if (got < 0) fail("safetensors", escape_controls(path_), ": cannot be read: ", errno_text());
  if (got < size) fail_damaged("became shorter while it was read");
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
  const bool is_integer = tensor.dtype == Dtype::I64;
  if (tensor.dtype == Dtype::unknown || is_integer != std::integral<Number>)
    fail_damaged(tensor_text(name), " is ", escape_controls(tensor.dtype_name.substr(0, 100)), "; expected ",
                 std::integral<Number> ? "I64" : "F32, F64 or BF16");
  if (tensor.count != count)
    fail_damaged(tensor_text(name), " has ", tensor.count, " elements ", shape_text(tensor.shape),
                 "; expected ", count);
  const Index bytes = row_of(tensor.dtype).bytes, at_once = chunk_bytes / bytes;
  std::string chunk(std::min(at_once, count) * bytes, '\0');
  for (Index i = 0; i < count; i += at_once) {
    const Index n = std::min(at_once, count - i);
    read(chunk.data(), n * bytes, data_begin_ + tensor.begin + i * bytes);
    convert(tensor.dtype, chunk.data(), n, out + i);
  }
}

template void SafetensorsFile::read_into(std::string_view, float*, Index) const;
template void SafetensorsFile::read_into(std::string_view, double*, Index) const;
template void SafetensorsFile::read_into(std::string_view, std::int64_t*, Index) const;

}  // namespace normscope
