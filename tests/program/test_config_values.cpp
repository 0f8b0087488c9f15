// Tests of the values that configs resolve to: defaults that depend on other keys, keys without effect,
// placements and branch scales.
#include "config/patterns.h"
#include "config_texts.h"

using namespace normscope;
using namespace normscope::testing;

TEST_CASE("defaults follow the keys on which they depend") {
  const struct {
    Sets sets;
    const char* key;
    Json value;
  } cases[] = {
      {"model.d_model=66", "model.d_ff", 264},
      {"model.d_model=66 model.d_ff=7", "model.d_ff", 7},
      {"model.bias=true", "model.ffn_bias", true},
      {"model.bias=true model.ffn_bias=false", "model.ffn_bias", false},
      {"train.lr=0.003", "train.min_lr", 0.0003},
      {"model.init.std=0.1", "model.init.embed_std", 0.1},
      {"model.init.scheme=xavier_normal", "model.init.embed_std", 0.02},  // tied
      {"model.init.scheme=xavier_normal model.tie_embeddings=false", "model.init.embed_std", 1},
      {"", "model.init.residual_scaling", true},
      {"model.init.scheme=xavier_normal", "model.init.residual_scaling", false},
      {"model.norm_placement=pre_scaled", "model.init.residual_scaling", false},
      {"model.norm_placement=deepnorm", "model.init.residual_scaling", false},
      {"model.norm_placement=deepnorm model.init.residual_scaling=true", "model.init.residual_scaling", true},
  };
  for (const auto& [sets, key, value] : cases) {
    CAPTURE(join(sets));
    CHECK(find_field(key)->get(config_of(sets)) == value);
  }
  const std::string both = R"({"train": {"lr": 0.5, "min_lr": 0.25}})";
  CHECK(config_of("", both).train.min_lr == 0.25);
  CHECK(config_of("train.lr=0.01", both).train.min_lr == 0.001);  // follows the rate that overrides
  CHECK(config_of("train.lr=0.01 train.min_lr=0.002", both).train.min_lr == 0.002);
  CHECK(refusal("model.d_model=20000 model.n_head=1") ==
        "[config] model.d_ff: got 80000; expected integer, 1..65536 (default: 4*d_model)");
}

TEST_CASE("final_norm auto follows the placement of the last sublayer") {
  const auto final_norm = [](const std::string& placement) {
    return config_of("model.n_layer=2 model.final_norm=auto model.norm_placement=" + placement)
        .model.final_norm;
  };
  for (const char* with : {"pre", "sandwich", "peri", "res_post", "pre_scaled", "mix", "[\"post\",\"pre\"]"})
    CHECK(final_norm(with));
  for (const char* without :
       {"post", "deepnorm", "rezero", "none", "[\"pre\",\"post\"]", "[\"pre\",\"none\"]"})
    CHECK_FALSE(final_norm(without));
  CHECK_FALSE(config_of("model.final_norm=false").model.final_norm);
  CHECK(config_of("model.final_norm=true model.norm_placement=post").model.final_norm);
}

TEST_CASE("keys that are given where they have no effect are named, with the reason") {
  const struct {
    Sets sets;
    const char* without_effect;
  } cases[] = {
      {"", ""},
      {"model.norm_groups=8", "model.norm_groups (--set: only groupnorm has groups)"},
      {"model.norm_groups=4", ""},  // the default, to which it resolves anyway
      {"model.norm=rmsnorm model.norm_bias=true", "model.norm_bias (--set: this norm has no bias)"},
      {"model.norm_placement=rezero model.final_norm=auto", ""},
      {"model.init.scheme=xavier_normal model.init.residual_scaling=true",
       "model.init.residual_scaling (--set: only scheme gpt2 has it)"},
      {"model.init.zero_branches=true model.init.residual_scaling=true",
       "model.init.residual_scaling (--set: zero_branches sets these matrices to 0)"},
      // A tied head's embeddings take std as their default.
      {"model.init.scheme=xavier_normal model.init.std=0.5", ""},
      {"model.init.scheme=xavier_normal model.init.std=0.5 model.init.embed_std=0.1",
       "model.init.std (--set: only scheme gpt2 and the default of a tied head's embed_std take it)"},
      {"model.init.scheme=xavier_normal model.init.std=0.5 model.norm_groups=8",
       "model.norm_groups (--set: only groupnorm has groups)"},
      {"model.norm_placement=peri model.embed_norm=false",
       "model.embed_norm (--set: the placement has this norm already)"},
      {"model.norm_placement=peri model.embed_norm=true", ""},
      {"model.norm_placement=subln model.inner_norm=false",
       "model.inner_norm (--set: every sublayer has this norm already by its placement)"},
      {R"(model.norm_placement={"attn":"subln","ffn":"pre"} model.inner_norm=true)", ""},
      {R"(model.norm_placement=["pre","subln"] model.n_layer=2 model.inner_norm=true)", ""},
      {R"(model.norm_placement=["rezero","pre"] model.n_layer=2 model.branch_scale=0.5)", ""},
      {R"(model.norm_placement={"attn":"none","ffn":"rezero"} model.norm=rmsnorm)",
       "model.norm (--set: the placement has no norms)"},
      {"train.schedule=wsd train.cooldown=0 train.min_lr=0", "train.min_lr (--set: the rate never falls)"},
      {"train.steps=3 train.warmup_steps=2 train.schedule=linear",
       "train.schedule (--set: at most one step follows the warm-up, and it trains at lr)"},
      {"train.steps=4 train.warmup_steps=2 train.schedule=linear", ""},
      {"data.val_fraction=0 eval.batches=5", "eval.batches (--set: there is no validation text)"},
      {"model.norm_eps=0 model.norm_eps_outside=true", "model.norm_eps_outside (--set: norm_eps is 0)"},
      {"train.momentum=0.5", "train.momentum (--set: only optimizers sgd and muon have it)"},
      {"train.optimizer=sgd train.beta1=0.5", "train.beta1 (--set: only optimizers adamw and muon have it)"},
  };
  for (const auto& [sets, without_effect] : cases) {
    CAPTURE(join(sets));
    const Loaded loaded = load(sets);
    CHECK(join(loaded.without_effect) == without_effect);
    CHECK(same(config_of("", dump_text(loaded.config)), loaded.config));
  }
}

TEST_CASE(
    "the values of keys that a dumped config lists as idle are not read, and changes of them are reported") {
  Json dumped = dump(config_of("model.norm=rmsnorm"));
  CHECK(dumped["model"]["norm_bias"] == false);
  const Loaded loaded = load("model.norm=layernorm", dumped.dump());
  CHECK(loaded.config.model.norm_bias);  // the default, as if RMSNorm had left the key out
  CHECK(join(loaded.without_effect) == "model.norm_bias (a.json: $idle lists it)");
  CHECK(load("model.norm=layernorm model.norm_bias=true", dumped.dump()).without_effect.empty());
  dumped["model"]["norm_groups"] = 8;
  CHECK(join(load("", dumped.dump()).without_effect) == "model.norm_groups (a.json: $idle lists it)");
}

TEST_CASE("a dumped config lists the keys whose values are defaults that depend on others") {
  int listed = 0;
  for (const char* sets : {"", "train.optimizer=sgd", "model.norm=none", "train.schedule=constant"}) {
    const RunConfig config = config_of(sets);
    const Json keys = dump(config)[derived_keys];
    CHECK(dump(config_of("", dump_text(config)))[derived_keys] == keys);
    for (const Field& field : fields()) {
      INFO(field.key, ", ", sets);
      const bool is_derived = field.default_to.apply != nullptr && field.is_used(config);
      CHECK(std::ranges::count(keys, Json(field.key)) == is_derived);
      if (!is_derived) continue;
      ++listed;
      RunConfig other = config;
      const Json value = field.get(config);
      Json other_value = value == false;
      if (value.is_number()) other_value = value.is_number_float() ? Json(0.5) : Json(1);
      CHECK(field.set(other, other_value) == "");
      CHECK(std::ranges::count(dump(other)[derived_keys], Json(field.key)) == 0);
    }
  }
  CHECK(listed > 20);
}

TEST_CASE("placements are names, pairs or lists") {
  const auto placement = [](const std::string& written, const std::string& blocks = "2") {
    return config_of("model.n_layer=" + blocks + " model.norm_placement=" + written).model.norm_placement;
  };
  for (const Placement& row : placement_table())
    CHECK(placement(row.name) == std::vector<BlockPlacement>{row.kind});
  const std::string pair = R"({"attn":"post","ffn":"none"})";
  const BlockPlacement as_pair{PlacementKind::post, PlacementKind::none};
  CHECK(placement(pair) == std::vector<BlockPlacement>{as_pair});
  CHECK(placement("[\"pre\"," + pair + "]") == std::vector<BlockPlacement>{PlacementKind::pre, as_pair});
  CHECK(placement("[\"peri\"]", "1") == std::vector<BlockPlacement>{PlacementKind::peri});

  const std::pair<const char*, const char*> wrong[] = {
      {R"(["peri","pre","mix"])", R"(got ["peri","pre","mix"]; expected pre | post)"},
      {R"(["pre","peri","pre"])", "only the first block can have it"},
      {R"(["pre","pots","pre"])", R"(got ["pre","pots","pre"]; expected pre | post)"},
      {R"(["pre","pre"])", "a list of 2 for model.n_layer = 3"},
      {"[]", "got []; expected"},
      {R"({"attn":"post"})",
       "or {\"attn\": ..., \"ffn\": ...}, or a list of n_layer of these, or a pattern: mix | hybrid"},
      {R"({"attn":"post","ffn":"mix"})", R"(got {"attn":"post","ffn":"mix"}; expected)"},
      {R"({"attn":"peri","ffn":"pre"})", "for both sublayers"}};
  for (const auto& [written, part] : wrong)
    CHECK_HOLDS(refusal(std::string("model.n_layer=3 model.norm_placement=") + written), part);
}

TEST_CASE("patterns are read as the lists of their papers") {
  using enum PlacementKind;
  using Blocks = std::vector<BlockPlacement>;
  const auto model = [](const std::string& sets) { return config_of("model.n_layer=" + sets).model; };
  CHECK(model("6 model.norm_placement=mix").norm_placement == Blocks{post, post, pre, pre, pre, pre});
  CHECK(model("3 model.norm_placement=mix model.mix_post_fraction=1").norm_placement == Blocks(3, post));
  CHECK(model("100 model.norm_placement=mix model.mix_post_fraction=0.07").norm_placement[7] ==
        BlockPlacement(pre));
  const BlockPlacement hybrid{post, none};
  CHECK(model("2 model.norm_placement=hybrid").norm_placement == Blocks{hybrid, hybrid});
  CHECK(model("3 model.norm_placement=hybrid_star").norm_placement == Blocks{pre, hybrid, hybrid});
  for (const Pattern& pattern : patterns()) {
    const ModelConfig read = model(text("3 model.norm_placement=", pattern.name));
    CHECK(read.final_norm);
    CHECK(read.qkv_norm == (pattern.name != std::string("mix")));
  }
}

TEST_CASE("branch_scale is a number or a power of L") {
  const std::pair<const char*, double> at_4_blocks[] = {
      {"0.5", 0.5}, {"L^-0.5", 0.5}, {"L^2", 16}, {"L^0", 1}};
  for (const auto& [written, factor] : at_4_blocks)
    CHECK(config_of(std::string("model.branch_scale=") + written).model.branch_scale.of(4) == factor);
  for (const char* wrong : {"L^", "L^x", "L^-0.5x", "L^9", "L^[1]", "-1", "M^2", "true"})
    CHECK_HOLDS(refusal(std::string("model.branch_scale=") + wrong),
                "expected number in [0, 100], or \"L^E\"");
}
