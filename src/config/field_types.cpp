#include "config/field_types.h"

#include <charconv>
#include <cmath>

#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

bool is_path(const json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') == std::string::npos;
}

}  // namespace

ValueType<Index> integer(Index low, Index high) {
  const auto read = [=](const json& given) {
    const std::optional<Index> number = whole_number(given);
    return number && *number >= low && *number <= high ? number : std::nullopt;
  };
  return {
      text("integer, ", low, "..", high), {{"type", "integer"}, {"minimum", low}, {"maximum", high}}, read};
}

ValueType<double> number(double low, double high, High end) {
  const bool open = end == High::open, limited = high < std::numeric_limits<double>::infinity();
  const auto read = [=](const json& given) -> std::optional<double> {
    if (!given.is_number()) return std::nullopt;
    const double x = given.get<double>();
    return x >= low && (open ? x < high : x <= high) ? std::optional(x) : std::nullopt;
  };
  ordered_json schema = {{"type", "number"}, {"minimum", low}};
  if (limited) schema[open ? "exclusiveMaximum" : "maximum"] = high;
  return {limited ? text("number in [", low, ", ", high, open ? ')' : ']') : text("number >= ", low), schema,
          read};
}

ValueType<DepthFactor> depth_factor() {
  const ValueType<double> plain = number(0, 100);
  const auto read = [=](const json& given) -> std::optional<DepthFactor> {
    if (const std::optional<double> factor = plain.read(given)) return DepthFactor{*factor, 0};
    const std::string written = given.is_string() ? given.get<std::string>() : "";
    DepthFactor power;
    const char *begin = written.data() + 2, *end = written.data() + written.size();
    if (!written.starts_with("L^")) return std::nullopt;
    const auto [parsed, error] = std::from_chars(begin, end, power.exponent);
    const bool sound = error == std::errc() && parsed == end && std::abs(power.exponent) <= 8;
    return sound && power.exponent != 0 ? std::optional(power) : std::nullopt;
  };
  return {plain.allowed + ", or \"L^E\", E from -8 to 8, such as \"L^-0.5\"",
          {{"anyOf", {plain.schema, {{"type", "string"}, {"pattern", "^L\\^-?[0-9.]+$"}}}}},
          read};
}

void to_json(ordered_json& json, const DepthFactor& factor) {
  json = factor.exponent == 0 ? ordered_json(factor.factor) : ordered_json(text("L^", factor.exponent));
}

ValueType<bool> boolean() {
  const auto read = [](const json& given) {
    return given.is_boolean() ? std::optional(given.get<bool>()) : std::nullopt;
  };
  return {"true | false", {{"type", "boolean"}}, read};
}

ValueType<bool> boolean_or_auto() {
  return {"true | false | \"auto\"", {{"enum", {true, false, "auto"}}}, boolean().read};
}

ValueType<std::vector<std::string>> paths() {
  const json one = {{"type", "string"}, {"minLength", 1}};
  const auto read = [](const json& given) -> std::optional<std::vector<std::string>> {
    const json list = given.is_array() ? given : json::array({given});
    const auto is_file = [](const json& path) { return is_path(path) && path != ""; };
    if (list.empty() || !std::all_of(list.begin(), list.end(), is_file)) return std::nullopt;
    return list.get<std::vector<std::string>>();
  };
  return {"a file, or a list of files",
          {{"anyOf", {one, {{"type", "array"}, {"items", one}, {"minItems", 1}}}}},
          read};
}

ValueType<std::string> optional_path() {
  const auto read = [](const json& given) {
    return is_path(given) ? std::optional(given.get<std::string>()) : std::nullopt;
  };
  return {"a file, or \"\" for none", {{"type", "string"}}, read};
}

ValueType<std::string> run_name() {
  constexpr std::size_t max_bytes = 200;  // a file name may have 255, and some get an ending
  const auto read = [=](const json& given) -> std::optional<std::string> {
    const std::string name = given.is_string() ? given.get<std::string>() : "";
    const bool names_a_folder = !name.empty() && name[0] != '.' && name.find('/') == name.npos &&
                                name.size() <= max_bytes && escape_controls(name) == name;
    return names_a_folder ? std::optional(name) : std::nullopt;
  };
  return {text("text without slash, leading dot or control characters, of at most ", max_bytes, " bytes"),
          {{"type", "string"}, {"pattern", "^[^./][^/]*$"}},
          read};
}

std::string type_error(const json& got, const std::string& expected, const std::vector<std::string>& names) {
  const std::string meant = got.is_string() ? nearest_or_begun(got.get_ref<const std::string&>(), names) : "";
  return text("got ", quote(got), "; expected ", expected,
              meant.empty() ? "" : "; did you mean " + meant + "?");
}

Field placement_field(std::string key, std::string doc, FieldTraits traits) {
  const ValueType<PlacementKind> any = one_of<PlacementKind>();
  ValueType<PlacementKind> in_list = any;
  for (const Placement& row : placement_table()) {
    if (row.pattern != nullptr) std::erase(in_list.names, row.name);
  }
  const std::string pair_text = R"({"attn": ..., "ffn": ...})";
  const std::string allowed =
      text(any.allowed, ", or ", pair_text, ", or a list of n_layer such (no mix, no hybrid)");
  const ordered_json name = {{"enum", in_list.names}};
  const ordered_json pair = {{"type", "object"},
                             {"properties", {{"attn", name}, {"ffn", name}}},
                             {"required", {"attn", "ffn"}},
                             {"additionalProperties", false}};
  const ordered_json list_type = {{"type", "array"}, {"items", {{"anyOf", {name, pair}}}}, {"minItems", 1}};
  const ordered_json schema = {{"anyOf", {{{"enum", any.names}}, pair, list_type}}};
  const auto get = [](const RunConfig& config) {
    ordered_json list = ordered_json::array();
    for (const auto& [attn, ffn] : config.model.norm_placement) {
      const ordered_json both = {{"attn", name_of(attn)}, {"ffn", name_of(ffn)}};
      list.push_back(attn == ffn ? both["attn"] : both);
    }
    return list.size() == 1 ? list[0] : list;
  };
  const auto set = [=](RunConfig& config, const json& given) -> std::string {
    std::vector<BlockPlacement> read;
    for (const json& entry : given.is_array() ? given : json::array({given})) {
      const std::string where = given.is_array() ? text("entry ", read.size() + 1, ": ") : "";
      const bool is_pair =
          entry.is_object() && entry.size() == 2 && entry.contains("attn") && entry.contains("ffn");
      std::vector<PlacementKind> kinds;
      for (const json& written :
           is_pair ? json::array({entry["attn"], entry["ffn"]}) : json::array({entry})) {
        const std::optional<PlacementKind> kind = any.read(written);
        if (!kind && !given.is_array() && !is_pair)
          return type_error(given, text(any.allowed, ", or ", pair_text, ", or a list of them"), any.names);
        if (!kind) return where + type_error(written, join(in_list.names, " | "), in_list.names);
        const Placement& row = placement_row(*kind);
        if (row.pattern != nullptr && (given.is_array() || is_pair))
          return text(where, row.name, " is a pattern of whole models and cannot stand in a list or for a ",
                      "sublayer; write out its placements");
        if (row.embed_norm && (!read.empty() || is_pair))
          return text(where, row.name, is_pair ? " is for whole blocks" : " can only come first",
                      ", because it adds a norm on the embeddings; sandwich has the others");
        kinds.push_back(*kind);
      }
      read.push_back({kinds.front(), kinds.back()});
    }
    // check_config() compares longer lists with n_layer, but takes a list of one for all blocks.
    const Index blocks = config.model.n_layer;
    if (given.is_array() && read.size() < 2 && (read.empty() || blocks != 1))
      return text("a list of ", read.size(), " for model.n_layer = ", blocks,
                  "; a list names the placement of every block");
    config.model.norm_placement = std::move(read);
    return {};
  };
  return {std::move(traits), std::move(key), allowed, std::move(doc), schema, get, set};
}

}  // namespace normscope
