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
    root["x-norms"][row.name]["over"] = over[static_cast<int>(row.over)];
  const auto power = [](const DepthFactor& p) {
    Json list = {p.base, p.exponent};
    if (p.log) list.push_back("log");
    return list;
  };
  for (const Placement& row : placement_table())
    root["x-placements"][row.name] = {{"norm_in", row.norm_in},
                                      {"norm_branch", row.norm_branch},
                                      {"norm_out", row.norm_out},
                                      {"embed_norm", row.embed_norm},
                                      {"learned_scale", row.learned_scale},
                                      {"inner_norm", row.inner_norm},
                                      {"final_norm", row.final_norm},
                                      {"residual_scaling", row.residual_scaling},
                                      {"alpha", power(row.alpha)},
                                      {"input_scale", power(row.input_scale)},
                                      {"init_factor", power(row.init_factor)}};
}

// True if the key's value is a default that depends on other keys.
bool is_derived(const Field& field, const RunConfig& config) {
  if (field.default_to.apply == nullptr) return false;
  RunConfig with_default = config;
  field.set_default(with_default);
  return field.get(with_default) == field.get(config);
}

}  // namespace

Json dump(const RunConfig& config) {
  Json root = Json::object();
  for (const Field& field : fields()) {
    const Json value = field.get(config);
    const bool is_missing = field.required && (value == 0 || value.empty());
    if (!is_missing) root[pointer_to(field.key, "/")] = value;
  }
  if (config.pattern) {
    for (const BlockPlacement& block : placements_of(config.model))
      root["model"][pattern_blocks].push_back(written(block));
  }
  root[derived_keys] = Json::array();
  root[idle_keys] = Json::array();
  for (const Field& field : fields()) {
    if (!field.is_used(config))
      root[idle_keys].push_back(field.key);
    else if (is_derived(field, config))
      root[derived_keys].push_back(field.key);
  }
  return root;
}

std::string dump_text(const RunConfig& config) { return json_text(dump(config)); }

Json json_schema() {
  const Json object = {{"type", "object"}, {"additionalProperties", false}};
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "normscope config"}};
  root.update(object);
  const auto add = [&](Json& section, const char* key, const char* type, const char* description) {
    section["properties"][key] = {{"type", type}, {"description", description}, {"x-bookkeeping", true}};
  };
  add(root, "$schema", "string", "path at which editors find this schema; ignored");
  add(root, "extends", "string",
      "config whose settings this one completes or replaces; relative to this file");
  add(root, derived_keys, "array",
      "written by normscope: keys at a default that depends on other keys; ignored");
  add(root, idle_keys, "array", "written by normscope: keys that have no effect; their values are ignored");
  root["properties"]["model"] = object;
  add(root["properties"]["model"], pattern_blocks, "array",
      "written by normscope: the list that the pattern in norm_placement stands for; ignored");
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
