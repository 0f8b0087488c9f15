#include "config/field_types.h"

#include <charconv>
#include <cmath>

#include "io/utf8.h"

namespace normscope {
namespace {

bool is_path(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') == std::string::npos;
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
  const bool open = end == High::open, limited = high < std::numeric_limits<double>::infinity();
  const auto read = [=](const Json& given) -> std::optional<double> {
    if (!given.is_number()) return std::nullopt;
    const double x = given.get<double>();
    return x >= low && (open ? x < high : x <= high) ? std::optional(x) : std::nullopt;
  };
  Json schema = {{"type", "number"}, {"minimum", low}};
  if (limited) schema[open ? "exclusiveMaximum" : "maximum"] = high;
  return {limited ? text("number in [", low, ", ", high, open ? ')' : ']') : text("number >= ", low), schema,
          read};
}

ValueType<DepthFactor> depth_factor() {
  const ValueType<double> plain = number(0, 100);
  const auto read = [=](const Json& given) -> std::optional<DepthFactor> {
    if (const std::optional<double> factor = plain.read(given)) return DepthFactor{*factor, 0};
    const std::string word = given.is_string() ? given.get<std::string>() : "";
    DepthFactor power;
    const char *begin = word.data() + 2, *end = word.data() + word.size();
    if (!word.starts_with("L^")) return std::nullopt;
    const auto [parsed, error] = std::from_chars(begin, end, power.exponent);
    const bool sound = error == std::errc() && parsed == end && std::abs(power.exponent) <= 8;
    return sound && power.exponent != 0 ? std::optional(power) : std::nullopt;
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
    const Json list = given.is_array() ? given : Json::array({given});
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
  constexpr std::size_t max_bytes = 200;  // a file name may have 255, and some get an ending
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

// Which placements may stand where is checked with the other combinations of keys.
ValueType<std::vector<BlockPlacement>> placements() {
  const ValueType<PlacementKind> one = one_of<PlacementKind>();
  const auto read_block = [=](const Json& given) -> std::optional<BlockPlacement> {
    const bool is_pair =
        given.is_object() && given.size() == 2 && given.contains("attn") && given.contains("ffn");
    const auto attn = one.read(is_pair ? given["attn"] : given),
               ffn = one.read(is_pair ? given["ffn"] : given);
    return attn && ffn ? std::optional(BlockPlacement(*attn, *ffn)) : std::nullopt;
  };
  const auto read = [=](const Json& given) -> std::optional<std::vector<BlockPlacement>> {
    std::vector<BlockPlacement> blocks;
    for (const Json& entry : given.is_array() ? given : Json::array({given})) {
      const std::optional<BlockPlacement> block = read_block(entry);
      if (!block) return std::nullopt;
      blocks.push_back(*block);
    }
    return blocks.empty() ? std::nullopt : std::optional(blocks);
  };
  const Json name = {{"enum", one.names}};
  const Json pair = {{"type", "object"},
                     {"properties", {{"attn", name}, {"ffn", name}}},
                     {"required", {"attn", "ffn"}},
                     {"additionalProperties", false}};
  const Json list = {{"type", "array"}, {"items", {{"anyOf", {name, pair}}}}, {"minItems", 1}};
  return {one.allowed + R"(, or {"attn": ..., "ffn": ...}, or a list of n_layer such)",
          {{"anyOf", {name, pair, list}}},
          read,
          one.names};
}

std::string type_error(const Json& got, const std::string& expected, const std::vector<std::string>& names) {
  const std::string meant = got.is_string() ? nearest(got.get_ref<const std::string&>(), names) : "";
  return text("got ", quote(got), "; expected ", expected,
              meant.empty() ? "" : "; did you mean " + meant + "?");
}

Json written(const DepthFactor& factor) {
  return factor.exponent == 0 ? Json(factor.factor) : Json(text("L^", factor.exponent));
}

Json written(const std::vector<std::string>& list) { return list.size() == 1 ? Json(list[0]) : Json(list); }

Json written(const std::vector<BlockPlacement>& blocks) {
  Json list = Json::array();
  for (const auto& [attn, ffn] : blocks) {
    if (attn == ffn)
      list.push_back(name_of(attn));
    else
      list.push_back({{"attn", name_of(attn)}, {"ffn", name_of(ffn)}});
  }
  return list.size() == 1 ? list[0] : list;
}

}  // namespace normscope
