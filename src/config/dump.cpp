#include "config/dump.h"

#include "config/fields.h"
#include "core/text.h"

namespace normscope {
namespace {

// The JSON pointer of a dotted key. `inside` leads from an object to its members: "/properties/" in a schema,
// "/" in a config.
Json::json_pointer pointer_to(std::string_view key, const std::string& inside) {
  return Json::json_pointer(inside + join(split(key, '.'), inside));
}

// Adds the tables of norms and placements, for scripts: {name: row}. A factor (b n)^e is written as [b, e]
// and (ln(b n))^e as [b, e, "log"].
void add_tables(Json& root) {
  constexpr const char* over[] = {"nothing", "features", "groups", "batch", "sequence"};
  for (const NormRow& row : norm_table())
    root["x-norms"][row.name] = {{"over", over[static_cast<int>(row.over)]},
                                 {"centred", row.centred},
                                 {"bias", row.has_bias},
                                 {"alpha", row.has_alpha},
                                 {"shift", row.has_shift}};
  const auto power = [](const DepthFactor& p) {
    Json list = {p.base, p.exponent};
    if (p.log) list.push_back("log");
    return list;
  };
  // {"first": placement of the first blocks, "rest": of the others, "first_blocks": their number}.
  const auto pattern_of = [](const Placement& row) -> Json {
    if (row.pattern == nullptr) return nullptr;
    constexpr const char* first_blocks[] = {"none", "one", "mix_post_fraction"};
    return {{"first_blocks", first_blocks[static_cast<int>(row.pattern->first_blocks)]},
            {"first", written(row.pattern->first)},
            {"rest", written(row.pattern->rest)}};
  };
  for (const Placement& row : placement_table())
    root["x-placements"][row.name] = {{"norm_in", row.norm_in},
                                      {"norm_branch", row.norm_branch},
                                      {"norm_out", row.norm_out},
                                      {"embed_norm", row.embed_norm},
                                      {"learned_scale", row.learned_scale},
                                      {"inner_norm", row.inner_norm},
                                      {"pattern", pattern_of(row)},
                                      {"final_norm", row.final_norm},
                                      {"residual_scaling", row.residual_scaling},
                                      {"qkv_norm", row.qkv_norm},
                                      {"alpha", power(row.alpha)},
                                      {"input_scale", power(row.input_scale)},
                                      {"init_factor", power(row.init_factor)}};
}

// The value that the key takes wherever it has no effect; null: its default, or it depends on the need.
Json value_without_effect(const Field& field) {
  std::set<Json> values;
  for (const Need& need : field.needs) values.insert(need.idle_value);
  return values.size() == 1 ? *values.begin() : Json();
}

}  // namespace

Json dump(const RunConfig& config) {
  Json root = Json::object();
  for (const Field& field : fields()) {
    const Json value = field.get(config);
    const bool is_missing = field.required && (value == 0 || value.empty());
    if (!is_missing && field.is_used(config)) root[pointer_to(field.key, "/")] = value;
  }
  root[derived_keys] = Json::array();
  for (const Field& field : fields()) {
    if (field.default_to.apply == nullptr || !field.is_used(config)) continue;
    RunConfig with_default = config;
    field.set_default(with_default);
    if (field.get(with_default) == field.get(config)) root[derived_keys].push_back(field.key);
  }
  return root;
}

std::string dump_text(const RunConfig& config) { return json_text(dump(config)); }

Json json_schema() {
  const Json object = {{"type", "object"}, {"additionalProperties", false}};
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "normscope config"}};
  root.update(object);
  const auto add_path = [&](const char* key, const char* description) {
    root["properties"][key] = {{"type", "string"}, {"description", description}, {"x-bookkeeping", true}};
  };
  add_path("$schema", "path at which editors find this schema; ignored");
  add_path("extends", "config whose settings this one completes or replaces; relative to this file");
  root["properties"][derived_keys] = {
      {"type", "array"},
      {"items", {{"type", "string"}}},
      {"description",
       "written by normscope: keys whose values are defaults that depend on other keys; ignored"},
      {"x-bookkeeping", true}};
  for (const Field& field : fields()) {
    for (std::size_t dot = field.key.find('.'); dot != field.key.npos; dot = field.key.find('.', dot + 1)) {
      Json& section = root[pointer_to(field.key.substr(0, dot), "/properties/")];
      if (section.is_null()) section = object;
    }
    Json& property = root[pointer_to(field.key, "/properties/")];
    property["description"] = field.doc + (field.required ? " (required)" : "");
    property.update(field.schema);
    if (!field.default_to.words.empty()) {
      property["description"] = text(field.doc, " (default: ", field.default_to.words, ")");
    } else if (!field.required) {
      property["default"] = field.get(RunConfig{});
    }
    // Scripts judge and label the differences of configs by these members; see Field.
    if (field.role == KeyRole::bookkeeping) property["x-bookkeeping"] = true;
    if (field.role == KeyRole::text) property["x-text"] = true;
    if (const Json value = value_without_effect(field); !value.is_null()) property["x-else"] = value;
    if (!field.label.empty()) property["x-label"] = field.label;
  }
  add_tables(root);
  return root;
}

std::string fixed_differences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> keys;
  for (const Field& field : fields()) {
    const Json left = field.get(a), right = field.get(b);
    if (left != right && field.is_used(a) && field.is_used(b) && field.role == KeyRole::fixed)
      keys.push_back(text(field.key, " (", quote(left), " -> ", quote(right), ")"));
  }
  return join(keys);
}

}  // namespace normscope
