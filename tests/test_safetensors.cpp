// The files that hold weights: round trips, foreign files, and every kind of damage.
#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/random.h"
#include "io/safetensors.h"

namespace fs = std::filesystem;
using namespace normscope;

namespace {

struct Scratch {
  fs::path path = fs::temp_directory_path() / ("normscope-" + std::to_string(::getpid()) + ".safetensors");
  ~Scratch() { fs::remove(path); }
  std::string name() const { return path.string(); }
  std::string bytes() const { return read_file(name()); }
  void set(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }

  // A file as another program may write it: this header, these bytes.
  void set(const std::string& header, std::string_view data) const {
    const std::uint64_t length = header.size();
    set(std::string(std::bit_cast<std::array<char, 8>>(length).data(), 8) + header + std::string(data));
  }

  // What is wrong with the file; empty if nothing.
  std::string fault() const {
    try {
      const SafetensorsFile file(name());
    } catch (const Error& error) {
      const std::string message = error.what();
      CHECK(error.exit == (fs::exists(path) ? Exit::failure : Exit::usage));
      CHECK(message.starts_with("[safetensors] " + name() + ": "));
      CHECK(message.find('\n') == message.npos);
      return message;
    }
    return "";
  }
};

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

void write_sample(const Scratch& scratch) {
  static const float weights[6] = {1, -2, 0.5f, 3.25f, -0.0f, 1e-30f};
  static const double loss[1] = {std::numbers::pi};
  static const std::int64_t tokens[2] = {-1, std::int64_t{1} << 40};
  const TensorView tensors[] = {{"w", Dtype::F32, {2, 3}, weights},
                                {"loss", Dtype::F64, {}, loss},
                                {"none", Dtype::F32, {0, 4}, nullptr},
                                {"tok\"en\n", Dtype::I64, {2}, tokens}};
  write_safetensors(scratch.name(), tensors, {{"config", "{\"a\": \"checksum\"}"}, {"step", "7"}});
}

}  // namespace

TEST_CASE("what is written is read") {
  const Scratch scratch;
  write_sample(scratch);
  const SafetensorsFile file(scratch.name());
  CHECK(file.has_checksum());
  CHECK(file.metadata().at("config") == "{\"a\": \"checksum\"}");
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.metadata().at("step") == "7");

  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string>{"loss", "tok\"en\n", "w", "none"});  // 8-byte elements first
  CHECK(file.at("w").shape == std::vector<Index>{2, 3});
  CHECK(file.at("loss").shape.empty());
  CHECK(file.at("none").count == 0);

  float w[6];
  file.read_into("w", w, 6);
  CHECK(w[3] == 3.25f);
  CHECK(std::signbit(w[4]));
  CHECK(w[5] == 1e-30f);
  double wide[6], loss = 0;
  file.read_into("w", wide, 6);
  CHECK(wide[5] == static_cast<double>(1e-30f));
  file.read_into("loss", &loss, 1);
  CHECK(loss == std::numbers::pi);
  float narrow = 0;
  file.read_into("loss", &narrow, 1);
  CHECK(narrow == static_cast<float>(std::numbers::pi));
  std::int64_t tokens[2];
  file.read_into("tok\"en\n", tokens, 2);
  CHECK(tokens[0] == -1);
  CHECK(tokens[1] == std::int64_t{1} << 40);
  file.read_into("none", w, 0);

  CHECK(file.find("x") == nullptr);
  CHECK_THROWS_WITH_AS(file.at("x"), doctest::Contains("no tensor `x`"), Error);
  CHECK_THROWS_WITH_AS(file.read_into("w", w, 5), doctest::Contains("6 elements (2, 3); expected 5"), Error);
  CHECK_THROWS_WITH_AS(file.read_into("w", tokens, 6), doctest::Contains("is F32; expected I64"), Error);
  CHECK_THROWS_WITH_AS(file.read_into("tok\"en\n", w, 2), doctest::Contains("`tok\"en\\n` is I64"), Error);
}

TEST_CASE("the same tensors make the same bytes, and aligned data") {
  const Scratch scratch;
  write_sample(scratch);
  const std::string first = scratch.bytes();
  write_sample(scratch);
  CHECK(scratch.bytes() == first);
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(first.substr(8).starts_with("{\"__metadata__\":{"));
}

TEST_CASE("files of other programs: BF16, spaces, other order, no checksum") {
  const Scratch scratch;
  scratch.set("{}", "");
  CHECK(scratch.fault() == "");
  scratch.set(
      "{ \"h\": {\"data_offsets\": [8, 10], \"shape\": [1], \"dtype\": \"BF16\"},\n"
      "  \"b\": {\"dtype\": \"BF16\", \"shape\": [2,2], \"data_offsets\": [0, 8]} }   ",
      raw<std::uint16_t>({0x3F80, 0xC048, 0x7F80, 0x0001, 0x3C00}));
  const SafetensorsFile file(scratch.name());
  CHECK(!file.has_checksum());
  CHECK(file.metadata().empty());
  CHECK(file.tensors()[0].name == "b");
  float values[4];
  file.read_into("b", values, 4);
  CHECK(values[0] == 1.0f);
  CHECK(values[1] == -3.125f);
  CHECK(values[2] == std::numeric_limits<float>::infinity());
  CHECK(values[3] == std::bit_cast<float>(0x00010000u));
  double wide[4];
  file.read_into("b", wide, 4);
  CHECK(wide[1] == -3.125);
  CHECK(file.at("h").begin == 8);
}

TEST_CASE("every truncation is an error") {
  const Scratch scratch;
  write_sample(scratch);
  const std::string whole = scratch.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    scratch.set(whole.substr(0, size));
    CHECK_MESSAGE(scratch.fault() != "", size);
  }
  scratch.set(whole + "x");
  CHECK(scratch.fault().find("the tensors end at byte 48 of 49") != std::string::npos);
}

TEST_CASE("every flipped bit of the data is an error") {
  const Scratch scratch;
  write_sample(scratch);
  const std::string whole = scratch.bytes();
  for (std::size_t bit = 8 * (whole.size() - 48); bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    scratch.set(damaged);
    CHECK(scratch.fault().find("checksum") != std::string::npos);
  }
  scratch.set(whole);
  CHECK(SafetensorsFile(scratch.name()).metadata().at("checksum") ==
        hex(fnv1a(whole.substr(whole.size() - 48))));
}

TEST_CASE("headers that lie") {
  const Scratch scratch;
  const auto fault = [&](const std::string& header, std::size_t data_bytes = 8) {
    scratch.set(header, std::string(data_bytes, '\0'));
    return scratch.fault();
  };
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  REQUIRE(fault(tensor("F32", "[2]", "[0,8]")) == "");

  struct Lie {
    std::string header, says;
  };
  const std::string t = R"("dtype":"F32","shape":[1],"data_offsets":)";
  const std::string malformed = R"(; expected {"dtype": NAME, "shape": [SIZE, ...])", misfit = "does not fit";
  const std::vector<Lie> lies = {
      {tensor("F32", "[3]", "[0,8]"), misfit},
      {tensor("F32", "[2]", "[0,12]"), "ends at byte 12 of 8"},
      {tensor("F32", "[2]", "[8,0]"), misfit},
      {tensor("F32", "[1]", "[4,8]"), "begins at byte 4 of the data; expected 0"},
      {tensor("F32", "[1]", "[0,4]"), "the tensors end at byte 4 of 8"},
      {tensor("F32", "[2]", "[0,8,8]"), malformed},
      {tensor("F32", "[-2]", "[0,8]"), malformed},
      {tensor("F32", "[2.0]", "[0,8]"), malformed},
      {tensor("F32", "[2]", "[0,18446744073709551615]"), malformed},
      {tensor("F32", "[1099511627776,1099511627776]", "[0,8]"), misfit},
      {tensor("F32", "[4611686018427387904]", "[0,0]"), misfit},
      {tensor("F32", "[[2]]", "[0,8]"), malformed},
      {tensor("F16", "[4]", "[0,8]"), "dtype"},
      {R"({"t":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", "dtype"},
      {R"({"t":{"dtype":"F32","shape":[2]}})", malformed},
      {R"({"t":{"shape":[2],"data_offsets":[0,8]}})", malformed},
      {R"({"t":{)" + t + R"([0,4]},"t":{)" + t + "[4,8]}}", "duplicate key \"t\""},
      {R"({"t":{)" + t + R"([0,4]},"u":{)" + t + "[0,4]}}", "begins at byte 0 of the data; expected 4"},
      {R"({"__metadata__":{"a":1}})", "expected strings by name"},
      {R"({"__metadata__":[]})", "expected strings by name"},
      {R"({"t":5})", malformed},
      {R"([])", "not a JSON object"},
      {R"({"t":)", "syntax error"},
      {"{} x", "syntax error"},
      {std::string("{\0}", 3), "a NUL byte"},
      {R"({"t":)" + std::string(200'000, '['), "levels of nesting"},
      {R"({")" + std::string(100'000, 'x') + "\":1}", malformed},
      {R"({"t":{"dtype":")" + std::string(100'000, 'x') + R"(","shape":[],"data_offsets":[0,4]}})", "dtype"},
  };
  for (const Lie& lie : lies) {
    const std::string said = fault(lie.header);
    CHECK(said.size() < 400);
    CHECK_MESSAGE(said.find(lie.says) != said.npos, lie.header.substr(0, 80), " -> ", said);
  }
  CHECK(fault(R"({"__metadata__":{"checksum":"0123456789abcdef"}})", 0).find("checksum") !=
        std::string::npos);
  CHECK(fault(R"({"__metadata__":{"checksum":""}})", 0).find("checksum") != std::string::npos);
}

TEST_CASE("lengths that lie cost no memory") {
  const Scratch scratch;
  const auto length = [&](std::uint64_t claimed) {
    scratch.set(raw<std::uint64_t>({claimed}) + "{}");
    return scratch.fault();
  };
  CHECK(length(3).find("cut short") != std::string::npos);
  CHECK(length(100'000'000).find("cut short") != std::string::npos);
  CHECK(length(100'000'001).find("no safetensors file") != std::string::npos);
  CHECK(length(~std::uint64_t{0}).find("no safetensors file") != std::string::npos);
  fs::remove(scratch.path);
  CHECK(scratch.fault().find("no such file") != std::string::npos);
  CHECK_THROWS_WITH_AS(SafetensorsFile("/dev/null"), doctest::Contains("is a device"), Error);
}

TEST_CASE("the writer refuses a name given twice") {
  const Scratch scratch;
  const float one = 1;
  const TensorView twice[] = {{"a", Dtype::F32, {1}, &one}, {"a", Dtype::F32, {1}, &one}};
  CHECK_THROWS_AS(write_safetensors(scratch.name(), twice, {}), Error);
  CHECK(!fs::exists(scratch.path));
}
