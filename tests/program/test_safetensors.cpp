// The files that hold weights: round trips, foreign files, and every kind of damage.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "core/random.h"
#include "io/safetensors.h"
#include "messages.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// A file as another program may write it: this header, these bytes.
std::string file_of(const std::string& header, std::string_view data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data);
}

// The message that refuses a file of these bytes, or nothing.
std::string refusal(std::string_view bytes) {
  const ScratchFile file("", bytes);
  const std::string text = message([&] { SafetensorsFile{file.path}; }, "", Exit::failure);
  CHECK((text.empty() || text.starts_with("[safetensors] " + file.path + ": ")));
  CHECK(!holds(text, "\n"));
  CHECK(text.size() < 400);
  return text;
}

// All numbers of a tensor.
template <class T>
std::vector<T> numbers(const SafetensorsFile& file, const std::string& name) {
  std::vector<T> all(static_cast<std::size_t>(file.at(name).count));
  file.read_into(name, all.data(), std::ssize(all));
  return all;
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

void write_sample(const ScratchFile& file) {
  static const float weights[6] = {1, -2, 0.5f, 3.25f, -0.0f, 1e-30f};
  static const double loss[1] = {std::numbers::pi};
  static const std::int64_t tokens[2] = {-1, std::int64_t{1} << 40};
  const TensorView tensors[] = {{"w", Dtype::F32, {2, 3}, weights},
                                {"loss", Dtype::F64, {}, loss},
                                {"none", Dtype::F32, {0, 4}, nullptr},
                                {"tok\"en\n", Dtype::I64, {2}, tokens}};
  write_safetensors(file.path, tensors, {{"config", "{\"a\": \"checksum\"}"}, {"step", "7"}});
}

}  // namespace

TEST_CASE("a written file is read back") {
  const ScratchFile scratch;
  write_sample(scratch);
  const std::string bytes = scratch.bytes();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.substr(8).starts_with("{\"__metadata__\":{"));
  write_sample(scratch);
  CHECK(scratch.bytes() == bytes);

  const SafetensorsFile file(scratch.path);
  CHECK(file.metadata() == Metadata{{"checksum", file.metadata().at("checksum")},
                                    {"config", "{\"a\": \"checksum\"}"},
                                    {"format", "pt"},
                                    {"step", "7"}});
  CHECK(file.metadata().at("checksum").starts_with(hex(fnv1a(bytes.substr(8 + length)))));
  CHECK(file.at("loss").begin == 0);  // 8-byte elements first
  CHECK(file.at("tok\"en\n").begin == 8);
  CHECK(file.at("w").begin == 24);
  CHECK(file.at("w").shape == std::vector<Index>{2, 3});
  CHECK(file.at("loss").shape.empty());
  CHECK(file.at("none").count == 0);

  const std::vector<float> w = numbers<float>(file, "w");
  CHECK(w == std::vector<float>{1, -2, 0.5f, 3.25f, 0, 1e-30f});
  CHECK(std::signbit(w[4]));
  CHECK(numbers<double>(file, "w") == std::vector<double>(w.begin(), w.end()));
  CHECK(numbers<double>(file, "loss") == std::vector{std::numbers::pi});
  CHECK(numbers<float>(file, "loss") == std::vector{static_cast<float>(std::numbers::pi)});
  CHECK(numbers<std::int64_t>(file, "tok\"en\n") == std::vector<std::int64_t>{-1, std::int64_t{1} << 40});
  CHECK(numbers<float>(file, "none").empty());

  const auto refused = [&](const std::string& name, auto number, Index count) {
    std::vector<decltype(number)> out(10);
    return message([&] { file.read_into(name, out.data(), count); }, "", Exit::failure);
  };
  CHECK_HOLDS(refused("x", 0.0f, 1), "no tensor \"x\"");
  CHECK_HOLDS(refused("w", 0.0f, 5), "\"w\" is F32 [2,3]; expected 5 numbers");
  CHECK_HOLDS(refused("w", std::int64_t{0}, 6), "expected 6 I64 numbers");
  CHECK_HOLDS(refused("tok\"en\n", 0.0f, 2), "\"tok\\\"en\\n\" is I64");
}

TEST_CASE("files of other programs: BF16, spaces, other order, no checksum") {
  CHECK(refusal(file_of("{}", "")) == "");
  const ScratchFile scratch(
      "", file_of("{ \"h\": {\"data_offsets\": [8, 10], \"shape\": [1], \"dtype\": \"BF16\"},\n"
                  "  \"b\": {\"dtype\": \"BF16\", \"shape\": [2,2], \"data_offsets\": [0, 8]} }   ",
                  raw<std::uint16_t>({0x3F80, 0xC048, 0x7F80, 0x0001, 0x3C00})));
  const SafetensorsFile file(scratch.path);
  CHECK(file.metadata().empty());
  const std::vector<float> values = numbers<float>(file, "b");
  CHECK(values == std::vector<float>{1, -3.125f, std::numeric_limits<float>::infinity(),
                                     std::bit_cast<float>(0x00010000u)});
  CHECK(numbers<double>(file, "b") == std::vector<double>(values.begin(), values.end()));
  CHECK(file.at("h").begin == 8);
}

TEST_CASE("every truncation, every flipped bit of the data, and wrong lengths are errors") {
  const ScratchFile scratch;
  write_sample(scratch);
  const std::string whole = scratch.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_MESSAGE(refusal(whole.substr(0, size)) != "", size);
  CHECK_HOLDS(refusal(whole + "x"), "the tensors have 48 bytes, the file 49");
  for (std::size_t bit = 8 * (whole.size() - 48); bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    CHECK_HOLDS(refusal(damaged), "checksum");
  }
  CHECK_HOLDS(refusal(raw<std::uint64_t>({3}) + "{}"), "cut short");
  CHECK_HOLDS(refusal(raw<std::uint64_t>({~std::uint64_t{0}}) + "{}"), "is no safetensors file");
  CHECK_HOLDS(message([] { SafetensorsFile("/no/such"); }), "No such file");
}

TEST_CASE("a flipped bit of the header is refused, or takes the checksum away and changes nothing else") {
  const ScratchFile scratch;
  write_sample(scratch);
  const std::string whole = scratch.bytes();
  int accepted = 0;
  for (std::size_t bit = 0; bit < 8 * (whole.size() - 48); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    if (refusal(damaged) != "") continue;
    ++accepted;
    const ScratchFile other("", damaged);
    CHECK(checksum_note(other.path) != "");
    Metadata metadata = SafetensorsFile(other.path).metadata();
    std::erase_if(metadata, [](const auto& entry) { return entry.second.size() == 32; });
    CHECK(metadata == Metadata{{"config", "{\"a\": \"checksum\"}"}, {"format", "pt"}, {"step", "7"}});
  }
  CHECK(accepted > 0);
  CHECK(accepted <= 8 * 8);  // the key's eight letters
}

TEST_CASE("the checksum of an earlier version is that of the data alone") {
  const auto with_sum = [](std::string_view data) {
    return file_of(R"({"__metadata__":{"checksum":")" + hex(fnv1a("12345678")) +
                       R"("},"t":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
                   data);
  };
  CHECK(refusal(with_sum("12345678")) == "");
  CHECK_HOLDS(refusal(with_sum("12345679")), "checksum of the data");
}

TEST_CASE("headers that contradict the file or the format are refused") {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string eight_bytes(8, '\0');
  REQUIRE(refusal(file_of(tensor("F32", "[2]", "[0,8]"), eight_bytes)) == "");

  const std::string t = R"("dtype":"F32","shape":[1],"data_offsets":)";
  const std::string malformed = "; expected a shape, data_offsets [BEGIN, END] and",
                    misfit = "does not fit bytes";
  const std::pair<std::string, std::string> lies[] = {
      {tensor("F32", "[3]", "[0,8]"), misfit},
      {tensor("F32", "[3]", "[0,12]"), misfit},
      {tensor("F32", "[2]", "[8,0]"), misfit},
      {tensor("F32", "[1]", "[0,4]"), "the tensors have 4 bytes, the file 8"},
      {tensor("F32", "[2]", "[0,8,8]"), malformed},
      {tensor("F32", "[-2]", "[0,8]"), malformed},
      {tensor("F32", "[2.0]", "[0,8]"), malformed},
      {tensor("F32", "[2]", "[0,18446744073709551615]"), malformed},
      {tensor("F32", "[1099511627776,1099511627776]", "[0,8]"), misfit},
      {tensor("F32", "[4611686018427387904]", "[0,0]"), misfit},
      {tensor("F32", "[[2]]", "[0,8]"), malformed},
      {tensor("F16", "[4]", "[0,8]"), "the dtype F32, F64, BF16 or I64"},
      {R"({"t":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", malformed},
      {R"({"t":{"dtype":"F32","shape":[2]}})", malformed},
      {R"({"t":{)" + t + R"([0,4]},"t":{)" + t + "[4,8]}}", "duplicate key \"t\""},
      {R"({"t":{)" + t + R"([0,4]},"u":{)" + t + "[0,4]}}", "begins at byte 0 of the data; expected 4"},
      {tensor("F32", "[1]", "[4,8]"), "begins at byte 4 of the data; expected 0"},
      {R"({"__metadata__":{"a":1}})", "expected an object of strings"},
      {R"({"__metadata__":[]})", "expected an object of strings"},
      {R"({"t":5})", malformed},
      {R"([])", "not a JSON object"},
      {R"({"t":)", "syntax error"},
      {R"({")" + std::string(100'000, 'x') + "\":1}", malformed},
      {R"({"__metadata__":{"checksum":"0123456789abcdef"},)"
       R"("t":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
       "checksum"},
  };
  for (const auto& [header, part] : lies) {
    CAPTURE(header.substr(0, 80));
    CHECK_HOLDS(refusal(file_of(header, eight_bytes)), part);
  }
}
