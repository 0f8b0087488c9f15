#include "io/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view metadata_name = "__metadata__";
constexpr std::size_t max_extents = 64;

// A name of the file in a message: it may be a hundred megabytes long.
std::string shown(std::string_view name) { return escape_controls(name.substr(0, 100)); }

// Takes the header as a stream of events, so that no depth or size of JSON can cost more than the text
// itself, and so that names given twice are seen (a tree would keep the last).
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, Index data_size, const std::string& path)
      : header_(header), data_size_(data_size), path_(path) {}

  bool start_object(std::size_t) override {
    if (depth_ >= 2 || array_) unexpected("an object");
    ++depth_;
    fields_.clear();
    dtype_.reset();
    shape_.clear();
    offsets_.clear();
    return true;
  }

  bool key(std::string& key) override {
    if (!(depth_ == 1 ? names_ : fields_).insert(key).second) stop(in_tensor(), "`", shown(key), "` twice");
    (depth_ == 1 ? name_ : field_) = key;
    return true;
  }

  bool string(std::string& value) override {
    if (depth_ != 2 || array_) unexpected("a string");
    if (name_ == metadata_name) {
      header_.metadata[field_] = value;
    } else if (field_ == "dtype") {
      dtype_ = known_dtype(value);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || array_ || name_ == metadata_name) unexpected("an array");
    array_ = field_ == "shape" ? &shape_ : field_ == "data_offsets" ? &offsets_ : nullptr;
    if (!array_) unexpected("an array");
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (!array_) unexpected("a number");
    if (value > std::uint64_t{1} << 62) stop(in_tensor(), field_, " holds ", value, ", which is too large");
    if (array_->size() == max_extents)
      stop(in_tensor(), field_, " holds more than ", max_extents, " numbers");
    array_->push_back(static_cast<Index>(value));
    return true;
  }

  bool end_array() override {
    array_ = nullptr;
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && name_ != metadata_name) finish_tensor();
    --depth_;
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(std::int64_t value) override { unexpected(text("the number ", value)); }
  bool number_float(double, const std::string& digits) override {
    unexpected("the number " + digits.substr(0, 40));
  }
  bool binary(Json::binary_t&) override { unexpected("binary"); }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception&) override {
    stop("the header is not JSON (its byte ", byte, ")");
  }

 private:
  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) stop(in_tensor(), "no ", field);
    }
    if (fields_.size() != 3) stop(in_tensor(), "more than dtype, shape and data_offsets");
    if (!dtype_) stop(in_tensor(), "dtype is not a string");
    if (offsets_.size() != 2) stop(in_tensor(), "data_offsets has ", offsets_.size(), " numbers; expected 2");

    const Index begin = offsets_[0], end = offsets_[1];
    if (begin > end) stop(in_tensor(), "data_offsets end (", end, ") before they begin (", begin, ")");
    if (end > data_size_)
      stop(in_tensor(), "ends at byte ", end, " of ", data_size_, "; the file is cut short");
    // Overflow is looked for in the other extents of an empty tensor too: (2^40, 2^40, 0) is no honest shape.
    Index product = 1, bytes = 0;
    bool empty = false;
    for (const Index extent : shape_) {
      empty = empty || extent == 0;
      if (__builtin_mul_overflow(product, std::max<Index>(extent, 1), &product)) overflow();
    }
    if (__builtin_mul_overflow(product, facts_of(*dtype_).bytes, &bytes)) overflow();
    const Index count = empty ? 0 : product;
    if (empty) bytes = 0;
    if (bytes != end - begin) {
      stop(in_tensor(), facts_of(*dtype_).name, " ", shape_text(shape_), " needs ", bytes,
           " bytes; data_offsets give ", end - begin);
    }
    header_.tensors.push_back({name_, *dtype_, shape_, count, begin, end});
  }

  Dtype known_dtype(const std::string& name) const {
    for (std::size_t i = 0; i < std::size(dtype_facts); ++i) {
      if (name == dtype_facts[i].name) return static_cast<Dtype>(i);
    }
    stop(in_tensor(), "unknown dtype `", shown(name), "`");
  }

  std::string in_tensor() const { return depth_ == 2 ? "tensor `" + shown(name_) + "`: " : std::string(); }
  [[noreturn]] void overflow() const { stop(in_tensor(), "the shape ", shape_text(shape_), " is too large"); }
  [[noreturn]] void unexpected(const std::string& what) const {
    stop(in_tensor(), "unexpected ", what, depth_ == 2 ? " in `" + shown(field_) + "`" : " in the header");
  }
  template <class... Parts>
  [[noreturn]] void stop(const Parts&... what) const {
    fail_as_damaged("safetensors", escape_controls(path_), ": ", what...);
  }

  SafetensorsHeader& header_;
  const Index data_size_;
  const std::string& path_;
  int depth_ = 0;      // 1: the header's object, 2: a tensor's or the metadata's
  std::string name_;   // of the tensor
  std::string field_;  // within the tensor or the metadata
  std::set<std::string> names_, fields_;
  std::optional<Dtype> dtype_;
  std::vector<Index> shape_, offsets_;
  std::vector<Index>* array_ = nullptr;  // the one being read
};

}  // namespace

SafetensorsHeader parse_header(std::string_view text_of_header, Index data_size, const std::string& path) {
  const auto stop = [&](const auto&... what) {
    fail_as_damaged("safetensors", escape_controls(path), ": ", what...);
  };
  if (!text_of_header.starts_with('{')) stop("is no safetensors file: the header is not a JSON object");
  SafetensorsHeader header;
  HeaderReader reader(header, data_size, path);
  Json::sax_parse(text_of_header, &reader);

  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  Index filled = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != filled) {
      stop("tensor `", shown(tensor.name), "` begins at byte ", tensor.begin, " of the data, ",
           tensor.begin < filled ? "inside" : "after a gap behind", " the tensor that ends at ", filled);
    }
    filled = tensor.end;
  }
  if (filled != data_size) stop("the tensors end at byte ", filled, " of ", data_size, " bytes of data");
  return header;
}

std::string header_text(const SafetensorsHeader& header) {
  std::string out = text("{\"", metadata_name, "\":", Json(header.metadata).dump());
  for (const TensorInfo& tensor : header.tensors) {
    out += text(",", Json(tensor.name).dump(), R"(:{"dtype":")", facts_of(tensor.dtype).name, R"(","shape":)",
                Json(tensor.shape).dump(), R"(,"data_offsets":[)", tensor.begin, ",", tensor.end, "]}");
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

std::size_t find_checksum(std::string_view header, std::string_view digits) {
  constexpr std::string_view before = R"("checksum":")";
  const std::size_t found = header.find(std::string(before) + std::string(digits) + '"');
  return digits.size() == 16 && found != header.npos ? found + before.size() : header.npos;
}

}  // namespace normscope
