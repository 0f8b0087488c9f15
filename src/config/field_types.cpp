#include <iomanip>

#include "config/fields.h"
#include "config/patterns.h"
#include "io/utf8.h"

namespace normscope {
namespace {

bool is_path(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') == std::string::npos;
}

// True if float32, in which models are trained, rounds the number to 0 although it is another one.
bool underflows(const Json& number) {
  const double x = number.is_number_float() ? number.get<double>() : 0;
  return x != 0 && static_cast<float>(x) == 0;
}

// The name nearest to `word`; for pre-norm, which is not like any name, the name before the hyphen.
std::string name_meant(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t alike = 2;
  const std::string near = nearest(word, names), first = word.substr(0, word.find_first_of("-_"));
  const bool is_alike = !near.empty() && edit_distance(word, near) <= alike;
  return !is_alike && std::ranges::count(names, first) ? first : near;
}

}  // namespace

ValueType<Index> integer(Index low, Index high) {
  const auto read = [=](const Json& given) {
    const std::optional<Index> number = whole_number(given);
    return number && *number >= low && *number <= high ? number : std::nullopt;
  };
  return {
      text("integer, ", low, "..", high), {{"type", "integer"}, {"minimum", low}, {"maximum", high}}, read};
}

ValueType<double> number(double low, double high, High end) {
  const bool open = end == High::open;
  const auto read = [=](const Json& given) -> std::optional<double> {
    if (!given.is_number()) return std::nullopt;
    const double x = given.get<double>();
    const bool in_range = x >= low && (open ? x < high : x <= high);
    return in_range && !underflows(given) ? std::optional(x) : std::nullopt;
  };
  return {text("number in [", low, ", ", high, open ? ')' : ']'),
          {{"type", "number"}, {"minimum", low}, {open ? "exclusiveMaximum" : "maximum", high}},
          read};
}

ValueType<DepthFactor> depth_factor() {
  const ValueType<double> plain = number(0, 100), exponent = number(-8, 8);
  const auto read = [=](const Json& given) -> std::optional<DepthFactor> {
    if (const std::optional<double> factor = plain.read(given)) return DepthFactor{.factor = *factor};
    const std::string word = given.is_string() ? given.get<std::string>() : "";
    if (!word.starts_with("L^")) return std::nullopt;
    const auto power = exponent.read(Json::parse(word.substr(2), nullptr, /*allow_exceptions=*/false));
    return power ? std::optional(DepthFactor{.exponent = *power}) : std::nullopt;
  };
  return {plain.allowed + ", or \"L^E\", E from -8 to 8, such as \"L^-0.5\"",
          {{"anyOf", {plain.schema, {{"type", "string"}, {"pattern", "^L\\^-?[0-9.]+$"}}}}},
          read};
}

ValueType<bool> boolean() {
  const auto read = [](const Json& given) {
    return given.is_boolean() ? std::optional(given.get<bool>()) : std::nullopt;
  };
  return {"true | false", {{"type", "boolean"}}, read};
}

ValueType<bool> boolean_or_auto() {
  return {"true | false | \"auto\"", {{"enum", {true, false, "auto"}}}, boolean().read};
}

ValueType<std::vector<std::string>> paths() {
  const Json one = {{"type", "string"}, {"minLength", 1}};
  const auto read = [](const Json& given) -> std::optional<std::vector<std::string>> {
    const Json list = as_list(given);
    const auto is_file = [](const Json& path) { return is_path(path) && path != ""; };
    if (list.empty() || !std::all_of(list.begin(), list.end(), is_file)) return std::nullopt;
    return list.get<std::vector<std::string>>();
  };
  return {"a file, or a list of files",
          {{"anyOf", {one, {{"type", "array"}, {"items", one}, {"minItems", 1}}}}},
          read};
}

ValueType<std::string> optional_path() {
  const auto read = [](const Json& given) {
    return is_path(given) ? std::optional(given.get<std::string>()) : std::nullopt;
  };
  return {"a file, or \"\" for none", {{"type", "string"}}, read};
}

ValueType<std::string> run_name() {
  constexpr std::size_t max_bytes = 200;  // a file name may have 255, and some names get a suffix
  const auto read = [=](const Json& given) -> std::optional<std::string> {
    const std::string name = given.is_string() ? given.get<std::string>() : "";
    const bool names_a_folder = !name.empty() && name[0] != '.' && name.find('/') == name.npos &&
                                name.size() <= max_bytes && escape_controls(name) == name;
    return names_a_folder ? std::optional(name) : std::nullopt;
  };
  return {text("text without slash, leading dot or control characters, of at most ", max_bytes, " bytes"),
          {{"type", "string"}, {"pattern", "^[^./][^/]*$"}},
          read};
}

// The order of placements is checked with the other combinations of keys. A pattern's name is read by the
// key's row (with_patterns).
ValueType<std::vector<BlockPlacement>> placements() {
  const ValueType<PlacementKind> one = one_of<PlacementKind>();
  const auto read = [=](const Json& given) -> std::optional<std::vector<BlockPlacement>> {
    std::vector<BlockPlacement> blocks;
    for (const Json& entry : as_list(given)) {
      const bool is_pair = entry.is_object() && entry.size() == 2;
      const auto attn = one.read(is_pair ? entry.value("attn", Json()) : entry);
      const auto ffn = one.read(is_pair ? entry.value("ffn", Json()) : entry);
      if (!attn || !ffn) return std::nullopt;
      blocks.emplace_back(*attn, *ffn);
    }
    return blocks.empty() ? std::nullopt : std::optional(blocks);
  };
  std::vector<std::string> names = one.names;
  for (const Pattern& pattern : patterns()) names.push_back(pattern.name);
  const Json name = {{"enum", one.names}};
  const Json pair = {{"type", "object"},
                     {"properties", {{"attn", name}, {"ffn", name}}},
                     {"required", {"attn", "ffn"}},
                     {"additionalProperties", false}};
  const Json list = {{"type", "array"}, {"items", {{"anyOf", {name, pair}}}}, {"minItems", 1}};
  return {one.allowed + R"(, or {"attn": ..., "ffn": ...}, or a list of n_layer of these, or a pattern: )" +
              join(std::vector(names.begin() + std::ssize(one.names), names.end()), " | "),
          {{"anyOf", {{{"enum", names}}, pair, list}}},
          read,
          names};
}

std::string type_error(const Json& got, const std::string& expected, const std::vector<std::string>& names) {
  const std::string meant = got.is_string() ? name_meant(got.get<std::string>(), names) : "";
  if (underflows(got))
    return text("got ", quote(got), ", which is 0 in float32; expected 0 or a number of at least 1.5e-45");
  return text("got ", quote(got), "; expected ", expected,
              meant.empty() ? "" : "; did you mean " + meant + "?");
}

Json written(const DepthFactor& factor) {
  return factor.exponent == 0 ? Json(factor.factor)
                              : Json(text("L^", std::setprecision(15), factor.exponent));
}

Json written(const BlockPlacement& block) {
  if (block.attn == block.ffn) return block.attn->name;
  return {{"attn", block.attn->name}, {"ffn", block.ffn->name}};
}

Json written(const std::vector<BlockPlacement>& blocks) {
  Json list = Json::array();
  for (const BlockPlacement& block : blocks) list.push_back(written(block));
  return as_entry(list);
}

}  // namespace normscope
