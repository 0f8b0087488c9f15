// Tests of configs: the values read, their origins, and the messages that refuse them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "config/dump.h"
#include "config/fields.h"
#include "config/load.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"
#include "messages.h"

namespace fs = std::filesystem;
using namespace normscope;
using namespace normscope::testing;
using Sets = std::vector<std::string>;

namespace {

const fs::path configs = fs::path(NORMSCOPE_SOURCE_DIR) / "configs";
const LoadOptions model_only = {.need_data = false};

// A folder with a corpus and the configs of one test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("normscope-config-" + std::to_string(::getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path / "data");
    write("data/text.txt", "some text\n");
  }
  ~Folder() { fs::remove_all(path); }
  fs::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
  std::string text() const { return (path / "data/text.txt").string(); }
};

constexpr const char* whole =
    R"({"data": {"path": "data/text.txt"}, "train": {"steps": 10, "batch_size": 2}})";

std::string message_of(const std::string& text, const Sets& sets = {}) {
  return message([&] { load_config_text(text, "a.json", sets, model_only); });
}
std::string refusal(const Sets& sets) { return message_of("{}", sets); }

struct Refused {
  Sets sets;
  std::string part;  // of the message
};
void check_refused(const std::vector<Refused>& table) {
  for (const auto& [sets, part] : table) CHECK_HOLDS(refusal(sets), part);
}

RunConfig config_of(const std::string& text, const Sets& sets = {}) {
  return load_config_text(text, "a.json", sets, model_only).config;
}

std::string keys_that_differ(const RunConfig& a, const RunConfig& b) {
  std::string keys;
  for (const Field& field : fields()) keys += field.get(a) != field.get(b) ? field.key + " " : "";
  return keys;
}

bool same(const RunConfig& a, const RunConfig& b) {
  return dump(a) == dump(b) && keys_that_differ(a, b).empty();
}

}  // namespace

TEST_CASE("integers: 1e3 is one, 3.7, true and what does not fit are not") {
  CHECK(whole_number(Json::parse("1e3")) == 1000);
  CHECK(whole_number(Json::parse("-7")) == -7);
  CHECK(whole_number(Json::parse("9223372036854775807")) == 9223372036854775807);
  for (const char* text : {"3.7", "true", "\"3\"", "null", "9223372036854775808", "18446744073709551615",
                           "18446744073709551616", "1e30", "-1e30", "[1]"}) {
    CAPTURE(text);
    CHECK_FALSE(whole_number(Json::parse(text)).has_value());
  }
  CHECK(config_of("{}", {"train.steps=1e3"}).train.steps == 1000);
}

TEST_CASE("every key refuses values outside its type and range") {
  CHECK(message_of(R"({"train": {"steps": 3.7}})") ==
        "[config] train.steps: got 3.7; expected integer, 1..10000000 (a.json)");
  CHECK(refusal({"model.dropout=0.999", "data.val_fraction=0.9", "name=post norm=1"}) == "no error");
  check_refused({
      {{"train.steps=0"}, "got 0; expected"},
      {{"model.dropout=1"}, "[config] model.dropout: got 1; expected number in [0, 1) (--set)"},
      {{"data.val_fraction=0.91"}, "expected number in [0, 0.9]"},
      {{"train.grad_clip=-1"}, "expected number in [0, 1e+09]"},
      {{"model.bias=1"}, "got 1; expected true | false"},
      {{"model.norm=layrnorm"}, "got \"layrnorm\"; expected layernorm | rmsnorm | batchnorm | groupnorm | "},
      {{"model.norm=layrnorm"}, "| none; did you mean layernorm? (--set)"},
      {{"train.gemm=blas"}, "expected auto | openblas | native"},
      {{"model.final_norm=maybe"}, "expected true | false | \"auto\""},
      {{"data.path=[]"}, "expected a file, or a list of files"},
      {{"data.path=\"\""}, "got \"\"; expected a file"},
      {{"model=5"}, "[config] model: got 5; expected an object of keys (--set)"},
      {{"model.norm"}, "[config] --set: got \"model.norm\"; expected KEY=VALUE, such as model.norm=rmsnorm"},
      {{"model.init={\"std\": 1, \"std\": 2}"}, "duplicate key \"std\""},
  });

  // No row takes an object or null, and every row takes its own default.
  RunConfig config;
  for (const Field& field : fields()) {
    CAPTURE(field.key);
    CHECK(field.set(config, Json::object()) != "");
    CHECK(field.set(config, nullptr) != "");
    if (!field.required && field.key != "name") CHECK(field.set(config, field.get(RunConfig{})) == "");
  }
  CHECK(same(config, RunConfig{}));
}

TEST_CASE("the name of a run is the name of a folder") {
  CHECK(config_of("{}").name == "a");
  for (const std::string wrong : {"a/b", "..", "", "a\nb", "a\x1b[31m", "\xFF", "5"}) {
    CAPTURE(wrong);
    CHECK_HOLDS(refusal({"name=" + wrong}),
                "; expected text without slash, leading dot or control characters, of at most 200 bytes");
  }
  CHECK_HOLDS(refusal({"name=" + std::string(201, 'x')}), "of at most 200 bytes");
}

TEST_CASE("unknown keys name the nearest") {
  check_refused({
      {{"train.dropout=0.1"}, "[config] train.dropout: unknown key; did you mean model.dropout? (--set)"},
      {{"model.nhead=4"}, "did you mean model.n_head?"},
      {{"modle={}"}, "modle: unknown key; did you mean model?"},
      {{"chekpoint={}"}, "did you mean checkpoint?"},
      {{"lr=1"}, "did you mean train.lr?"},
      {{"model.lr=1"}, "did you mean train.lr?"},
      {{"model.init={\"sdt\": 1}"}, "model.init.sdt: unknown key; did you mean model.init.std? (--set)"},
      {{"zzzzzzzzzzzz=1"}, "unknown key; `normscope config` lists all"},
      {{"extends=b.json"}, "extends: unknown key"},
  });
  CHECK_HOLDS(message_of(R"({"model.norm": "none"})"), "an object in an object");
  CHECK(nearest_key("log.every") == "log.every");  // not the first key that ends in `every`
  CHECK(nearest("top_k", std::vector<std::string>{"top-p", "top-k"}) == "top-k");
  CHECK(nearest("x", std::vector<std::string>{"train", "sample"}) == "");
}

TEST_CASE("--set: JSON, or else a string") {
  const RunConfig config = config_of(
      "{}", {"model.norm=rmsnorm", "model.norm_placement=[\"post\",\"pre\"]", "model.n_layer=2", "name=a=b",
             "model.init={\"scheme\": \"xavier_normal\", \"std\": 0.5}", "train.lr=1", "train.lr=2e-3"});
  CHECK(config.model.norm == NormKind::rmsnorm);
  CHECK(config.model.norm_placement == std::vector<BlockPlacement>{PlacementKind::post, PlacementKind::pre});
  CHECK(config.name == "a=b");
  CHECK(config.model.init.scheme == InitScheme::xavier_normal);
  CHECK(config.model.init.embed_std == 0.5);  // std is its default with a tied head
  CHECK(config.train.lr == 2e-3);             // the last one holds
}

TEST_CASE("all problems are reported at once") {
  const std::string output =
      message_of("{\"model\": {\"n_head\": 5, \"d_model\": 64,\n\"nrom\": 1}, \"train\": {\"lr\": \"x\"}}",
                 {"eval.every=1.5", "nope"});
  CHECK(output ==
        "[config] model.nrom: unknown key; did you mean model.norm? (a.json)\n"
        "[config] --set: got \"nope\"; expected KEY=VALUE, such as model.norm=rmsnorm\n"
        "[config] train.lr: got \"x\"; expected number in [0, 100] (a.json)\n"
        "[config] eval.every: got 1.5; expected integer, 0..10000000 (--set)\n"
        "[config] model.n_head: 5 does not divide model.d_model = 64; try 4 or 8 (a.json)");
  // A wrong value is not blamed twice.
  CHECK(message_of(R"({"model": {"n_head": 5, "d_model": "x"}})") ==
        "[config] model.d_model: got \"x\"; expected integer, 1..65536 (a.json)");
}

TEST_CASE("keys without a default must be given, where data is needed") {
  CHECK(message([] { load_config_text("{}", "a.json"); }) ==
        "[config] data.path: missing; expected a file, or a list of files (corpus in UTF-8; a relative path "
        "starts at the config's folder or at the working directory)\n"
        "[config] train.steps: missing; expected integer, 1..10000000 (number of updates)\n"
        "[config] train.batch_size: missing; expected integer, 1..65536 (number of sequences in a "
        "micro-batch, B)");
  const RunConfig config = config_of("{}");
  CHECK(config.train.steps == 0);
  CHECK(same(config_of(dump_text(config)), config));
}

TEST_CASE("paths are tried beside the config, then in the working directory") {
  const Folder folder;
  const fs::path file = folder.write("a.json", whole);
  CHECK(load_config(file).config.data.path == std::vector{folder.text()});
  CHECK(load_config(file).config.name == "a");

  // What --set writes counts from the working directory.
  const std::string relative = fs::relative(folder.text()).string();
  CHECK(load_config(file, {"data.path=" + relative}).config.data.path == std::vector{folder.text()});
  CHECK(load_config(file, {"data.val_path=" + relative}).config.data.val_path == folder.text());
  CHECK(load_config(folder.write("b.json", whole),
                    {"data.path=[\"" + relative + "\", \"" + folder.text() + "\"]"})
            .config.data.path == std::vector{folder.text(), folder.text()});

  const std::string here = (fs::current_path() / "no.txt").lexically_normal().string();
  const fs::path missing =
      folder.write("c.json", R"({"data": {"path": "no.txt"}, "train": {"steps": 1, "batch_size": 1}})");
  CHECK(message([&] { load_config(missing); }) == "[config] data.path: no such file: neither " +
                                                      (folder.path / "no.txt").string() + " nor " + here +
                                                      " (" + missing.string() + ")");
  CHECK(message([&] { load_config(file, {"data.path=no.txt"}); }) ==
        "[config] data.path: no such file: " + here + " (--set)");
  CHECK_HOLDS(message([&] { load_config(file, {"data.path=/"}); }), "/ is a folder");
  CHECK_NOTHROW(load_config(missing, {}, model_only));
}

TEST_CASE("extends merges deeply, and origins say from where") {
  const Folder folder;
  fs::create_directories(folder.path / "base");
  folder.write("base/one.json", R"({
    "data": {"path": "../data/text.txt"},
    "model": {"n_layer": 3, "norm_placement": ["pre", "post", "pre"], "init": {"std": 0.1}},
    "train": {"steps": 5, "batch_size": 2}
  })");
  folder.write("two.json",
               R"({"$schema": "s", "extends": "base/one.json", "model": {"init": {"embed_std": 2}}})");
  const fs::path file = folder.write("three.json", R"({
    "extends": "two.json",
    "model": {"n_layer": 2, "norm_placement": ["post", "pre"]}
  })");
  const Loaded loaded = load_config(file, {"train.lr=0.5"});
  const ModelConfig& model = loaded.config.model;
  CHECK(model.n_layer == 2);
  CHECK(model.norm_placement ==
        std::vector<BlockPlacement>{PlacementKind::post, PlacementKind::pre});  // a list is replaced whole
  CHECK(model.init.std == 0.1);
  CHECK(model.init.embed_std == 2);
  CHECK(loaded.config.name == "three");
  CHECK(loaded.config.data.path == std::vector{folder.text()});  // from the folder of the file that writes it

  const std::string at = folder.path.string();
  CHECK(loaded.origins.at("model.n_layer") == at + "/three.json");
  CHECK(loaded.origins.at("model.init.embed_std") == at + "/two.json");
  CHECK(loaded.origins.at("train.steps") == at + "/base/one.json");
  CHECK(loaded.origins.at("train.lr") == "--set");
  CHECK(loaded.origins.at("train.min_lr") == "default: lr/10");
  CHECK(loaded.origins.at("model.d_ff") == "default: 4*d_model");
  CHECK(loaded.origins.at("train.seed") == "default");
  CHECK(loaded.origins.size() == fields().size());

  const fs::path loop = folder.write("loop.json", R"({"extends": "./loop.json"})");
  CHECK_HOLDS(message([&] { load_config(loop); }), "extends: a circle, or more than 16 configs");
  CHECK_HOLDS(message([&] { load_config(folder.write("e.json", R"({"extends": 3})")); }),
              "extends: got 3; expected the file of a config");
}

TEST_CASE("files that are no config") {
  const Folder folder;
  CHECK_HOLDS(message([&] { load_config(folder.write("a.json", "[1]")); }),
              "a.json: got [1]; expected an object");
  CHECK_HOLDS(message([&] { load_config(folder.write("a.json", std::string(2'000'000, ' '))); }),
              "is larger than");
}

TEST_CASE("defaults that depend on other keys") {
  const Sets xavier = {"model.init.scheme=xavier_normal"}, deepnorm = {"model.norm_placement=deepnorm"};
  const struct {
    Sets sets;
    std::string key;
    Json value;
  } cases[] = {
      {{"model.d_model=66"}, "model.d_ff", 264},
      {{"model.d_model=66", "model.d_ff=7"}, "model.d_ff", 7},
      {{"model.bias=true"}, "model.ffn_bias", true},
      {{"model.bias=true", "model.ffn_bias=false"}, "model.ffn_bias", false},
      {{"train.lr=0.003"}, "train.min_lr", 0.0003},
      {{"model.init.std=0.1"}, "model.init.embed_std", 0.1},
      {xavier, "model.init.embed_std", 0.02},  // tied
      {{xavier[0], "model.tie_embeddings=false"}, "model.init.embed_std", 1},
      {{}, "model.init.residual_scaling", true},
      {xavier, "model.init.residual_scaling", false},
      {{"model.norm_placement=pre_scaled"}, "model.init.residual_scaling", false},
      {deepnorm, "model.init.residual_scaling", false},
      {{deepnorm[0], "model.init.residual_scaling=true"}, "model.init.residual_scaling", true},
  };
  for (const auto& [sets, key, value] : cases) CHECK(find_field(key)->get(config_of("{}", sets)) == value);
  const std::string both = R"({"train": {"lr": 0.5, "min_lr": 0.25}})";
  CHECK(config_of(both).train.min_lr == 0.25);
  CHECK(config_of(both, {"train.lr=0.01"}).train.min_lr == 0.001);  // follows the rate that overrides
  CHECK(config_of(both, {"train.lr=0.01", "train.min_lr=0.002"}).train.min_lr == 0.002);
  CHECK(message_of("{}", {"model.d_model=20000", "model.n_head=1"}) ==
        "[config] model.d_ff: got 80000; expected integer, 1..65536 (default: 4*d_model)");
}

TEST_CASE("final_norm auto follows the placement of the last sublayer") {
  const auto final_norm = [](const std::string& placement) {
    return config_of("{}", {"model.n_layer=2", "model.norm_placement=" + placement, "model.final_norm=auto"})
        .model.final_norm;
  };
  for (const char* with : {"pre", "sandwich", "peri", "res_post", "pre_scaled", "mix", "[\"post\",\"pre\"]"})
    CHECK(final_norm(with));
  for (const char* without :
       {"post", "deepnorm", "rezero", "none", "[\"pre\",\"post\"]", "[\"pre\",\"none\"]"})
    CHECK_FALSE(final_norm(without));
  CHECK_FALSE(config_of("{}", {"model.final_norm=false"}).model.final_norm);
  CHECK(config_of("{}", {"model.final_norm=true", "model.norm_placement=post"}).model.final_norm);
}

TEST_CASE("numbers that become 0 are refused") {
  check_refused({
      {{"train.lr=1e-400"},
       "[config] --set train.lr: got 1e-400, which is 0 in double precision; write 0 or a larger number"},
      {{"model.init={\"std\": -0.5e-999}"}, "got -0.5e-999, which is 0 in double precision"},
      {{"train.lr=1e-50"},
       "[config] train.lr: got 1e-50, which is 0 in float32; expected 0 or a number of at least 1.5e-45 "
       "(--set)"},
  });
  CHECK_HOLDS(message_of("// a comment\n{\"train\": {\"lr\": 0.0000e5,\n \"min_lr\": 3e-400}}"),
              "[config] a.json: got 3e-400, which is 0 in double precision");
  for (const Field& field : fields()) {
    if (field.allowed.find("number in [0, ") == std::string::npos) continue;
    CAPTURE(field.key);
    RunConfig config;
    CHECK_HOLDS(field.set(config, 1e-60), "which is 0 in float32");
    CHECK(field.set(config, 0.0) == "");
    CHECK(field.set(config, 1e-44) == "");
  }
}

TEST_CASE("keys that are given where they have no effect are named, with the reason") {
  const struct {
    Sets sets;
    std::string without_effect;
  } cases[] = {
      {{}, ""},
      {{"model.norm_groups=8"}, "model.norm_groups (only groupnorm has groups)"},
      {{"model.norm_groups=4"}, ""},  // the default, to which it resolves anyway
      {{"train.momentum=0.9"}, "train.momentum (only optimizers sgd and muon have it)"},
      {{"train.optimizer=sgd", "train.beta1=0.5"}, "train.beta1 (only optimizers adamw and muon have it)"},
      {{"model.norm=rmsnorm", "model.norm_bias=true"}, "model.norm_bias (this norm has no bias)"},
      {{"model.norm_placement=rezero", "model.final_norm=auto"}, ""},
      {{"model.init.scheme=xavier_normal", "model.init.residual_scaling=true"},
       "model.init.residual_scaling (only scheme gpt2 has it)"},
      {{"model.init.zero_branches=true", "model.init.residual_scaling=true"},
       "model.init.residual_scaling (zero_branches sets these matrices to 0)"},
      // A tied head's embeddings take std as their default.
      {{"model.init.scheme=xavier_normal", "model.init.std=0.5"}, ""},
      {{"model.init.scheme=xavier_normal", "model.init.std=0.5", "model.init.embed_std=0.1"},
       "model.init.std (only scheme gpt2 has it)"},
      {{"model.init.scheme=xavier_normal", "model.init.std=0.5", "model.norm_groups=8"},
       "model.norm_groups (only groupnorm has groups)"},
      {{"model.norm_placement=peri", "model.embed_norm=false"},
       "model.embed_norm (the placement has this norm already)"},
      {{"model.norm_placement=peri", "model.embed_norm=true"}, ""},
      {{"model.norm_placement=subln", "model.inner_norm=false"},
       "model.inner_norm (every sublayer has this norm already by its placement)"},
      {{R"(model.norm_placement={"attn":"subln","ffn":"pre"})", "model.inner_norm=true"}, ""},
      {{R"(model.norm_placement=["pre","subln"])", "model.n_layer=2", "model.inner_norm=true"}, ""},
      {{R"(model.norm_placement=["rezero","pre"])", "model.n_layer=2", "model.branch_scale=0.5"}, ""},
      {{R"(model.norm_placement={"attn":"none","ffn":"rezero"})", "model.norm=rmsnorm"},
       "model.norm (the placement has no norms)"},
      {{"train.schedule=wsd", "train.cooldown=0", "train.min_lr=0"}, "train.min_lr (the rate never falls)"},
      {{"train.steps=3", "train.warmup_steps=2", "train.schedule=linear"},
       "train.schedule (at most one step follows the warm-up, and it trains at lr)"},
      {{"train.steps=4", "train.warmup_steps=2", "train.schedule=linear"}, ""},
      {{"data.val_fraction=0", "eval.batches=5"}, "eval.batches (there is no validation text)"},
      {{"model.norm_eps=0", "model.norm_eps_outside=true"}, "model.norm_eps_outside (norm_eps is 0)"},
  };
  for (const auto& [sets, without_effect] : cases) {
    CAPTURE(join(sets));
    const Loaded loaded = load_config_text("{}", "a.json", sets, model_only);
    CHECK(join(loaded.without_effect) == without_effect);
    CHECK(same(config_of(dump_text(loaded.config)), loaded.config));
  }
  const ModelConfig mixed =
      config_of(dump_text(config_of(
                    "{}", {R"(model.norm_placement={"attn":"subln","ffn":"pre"})", "model.inner_norm=true"})))
          .model;
  CHECK(mixed.inner_norm);
}

TEST_CASE("a dumped config lists the keys whose values are defaults that depend on others") {
  const auto is_derived = [](const std::string& key, const Sets& sets) {
    const RunConfig config = config_of("{}", sets);
    const Json keys = dump(config)[derived_keys];
    CHECK(dump(config_of(dump_text(config)))[derived_keys] == keys);
    return std::ranges::count(keys, Json(key)) == 1;
  };
  const struct {
    std::string key, other_value, without_effect;
  } cases[] = {{"model.d_ff", "8", ""},
               {"model.final_norm", "false", "model.norm=none"},
               {"model.ffn_bias", "true", ""},
               {"model.init.embed_std", "1", ""},
               {"model.init.residual_scaling", "false", "model.init.scheme=xavier_normal"},
               {"train.min_lr", "0", "train.schedule=constant"},
               {"train.momentum", "0.5", "train.optimizer=adamw"}};
  for (const auto& [key, other_value, without_effect] : cases) {
    CAPTURE(key);
    Sets sets = {"train.optimizer=sgd"};
    CHECK(is_derived(key, sets));
    CHECK_FALSE(is_derived(key, {sets[0], key + "=" + other_value}));
    if (!without_effect.empty()) CHECK_FALSE(is_derived(key, {sets[0], without_effect}));
  }
  CHECK_FALSE(is_derived("model.n_layer", {}));
}

TEST_CASE("placements: names, pairs and lists") {
  const auto placement = [](const std::string& written, const std::string& blocks = "2") {
    return config_of("{}", {"model.n_layer=" + blocks, "model.norm_placement=" + written})
        .model.norm_placement;
  };
  for (const Placement& row : placement_table())
    CHECK(placement(row.name) == std::vector<BlockPlacement>{row.kind});
  const std::string pair = R"({"attn":"post","ffn":"none"})";
  const BlockPlacement as_pair{PlacementKind::post, PlacementKind::none};
  CHECK(placement(pair) == std::vector<BlockPlacement>{as_pair});
  CHECK(placement("[\"pre\"," + pair + "]") == std::vector<BlockPlacement>{PlacementKind::pre, as_pair});
  CHECK(placement("[\"peri\"]", "1") == std::vector<BlockPlacement>{PlacementKind::peri});

  for (const auto& [written, part] : std::vector<std::pair<std::string, std::string>>{
           {R"(["peri","pre","mix"])",
            "[config] model.norm_placement: mix is a pattern of whole models and cannot stand in a list or "
            "for "
            "a sublayer; write out its placements (--set)"},
           {R"(["pre","peri","pre"])", "only the first block can have it"},
           {R"(["pre","pots","pre"])", R"(got ["pre","pots","pre"]; expected pre | post)"},
           {R"(["pre","pre"])", "a list of 2 for model.n_layer = 3"},
           {"[]", "got []; expected"},
           {R"({"attn":"post"})", "or {\"attn\": ..., \"ffn\": ...}, or a list of n_layer of these"},
           {R"({"attn":"post","ffn":"mix"})", "mix is a pattern of whole models"},
           {R"({"attn":"peri","ffn":"pre"})", "for both sublayers"}})
    CHECK_HOLDS(refusal({"model.n_layer=3", "model.norm_placement=" + written}), part);
}

TEST_CASE("branch_scale: a number or a power of L") {
  const auto scale = [](const std::string& written) {
    return config_of("{}", {"model.branch_scale=" + written}).model.branch_scale;
  };
  CHECK(scale("0.5").of(4) == 0.5);
  CHECK(scale("L^-0.5").of(4) == 0.5);
  CHECK(scale("L^2").of(4) == 16);
  CHECK(scale("L^0").of(4) == 1);
  for (const char* wrong : {"L^", "L^x", "L^-0.5x", "L^9", "L^[1]", "-1", "M^2", "true"})
    CHECK_HOLDS(refusal({std::string("model.branch_scale=") + wrong}),
                "expected number in [0, 100], or \"L^E\"");
}

TEST_CASE("impossible combinations of keys are refused") {
  CHECK(refusal({"train.min_lr=1", "train.warmup_steps=100", "train.steps=10"}) ==
        "no error");  // the rate only rises
  check_refused({
      {{"model.d_model=64", "model.n_head=5"},
       "[config] model.n_head: 5 does not divide model.d_model = 64; try 4 or 8 (--set)"},
      {{"model.d_model=64", "model.n_head=100"}, "try 64 ("},
      {{"model.d_model=7", "model.n_head=6"}, "try 1 or 7"},
      {{"model.d_model=15", "model.n_head=3", "model.position=rope"}, "d_model/n_head = 5 wide"},
      {{"model.d_model=15", "model.n_head=3", "model.position=sinusoidal"}, "got 15; try 16"},
      {{"train.min_lr=1"}, "train.min_lr: 1 is above train.lr = 0.001"},
  });
}

TEST_CASE("a dumped config has the keys with an effect, and loads to the same config") {
  const Folder folder;
  const std::string file = folder.write("a.json", whole).string();
  for (const Sets& sets :
       {Sets{}, Sets{"model.norm_placement=rezero", "model.norm_bias=true"},
        Sets{"model.norm_placement=hybrid", "model.qk_norm=true", "model.norm=rmsnorm"},
        Sets{"model.n_layer=2", "model.norm_placement=[\"peri\",\"post\"]", "train.momentum=0.9"},
        Sets{"model.init.scheme=kaiming_normal", "model.tie_embeddings=false", "model.init.std=0.5"},
        Sets{"train.schedule=constant", "train.seed=9007199254740991", "model.branch_scale=L^-0.123456789"},
        Sets{"data.path=[\"" + folder.text() + "\",\"" + folder.text() + "\"]", "name=x y"}}) {
    const RunConfig config = load_config(file, sets).config;
    const Json dumped = dump(config);
    for (const Field& field : fields()) {
      std::string pointer = "/" + field.key;
      std::ranges::replace(pointer, '.', '/');
      CHECK(dumped.contains(Json::json_pointer(pointer)) == field.is_used(config));
    }
    const RunConfig again = load_config_text(dump_text(config), "b.json").config;
    CHECK(dump_text(again) == dump_text(config));
    CHECK(keys_that_differ(again, config) == "");
    CHECK(again.model.branch_scale.exponent == config.model.branch_scale.exponent);
    CHECK(fixed_differences(again, config) == "");
  }
  const Json dumped = dump(load_config(file).config);
  CHECK(dumped["model"]["norm_placement"] == "pre");
  CHECK(dumped["data"]["path"] == folder.text());
  CHECK(dumped.begin().key() == "name");
}

TEST_CASE("which keys differ, and which may on resume") {
  const RunConfig a = config_of("{}");
  const RunConfig b = config_of("{}", {"train.steps=5", "model.norm=rmsnorm", "log.every=1", "name=b"});
  // The bias follows from the norm.
  CHECK(keys_that_differ(a, b) == "name model.norm model.norm_bias train.steps log.every ");
  CHECK(fixed_differences(a, b) == R"(model.norm ("layernorm" -> "rmsnorm"))");
  CHECK(fixed_differences(config_of("{}", {"train.batch_size=5"}), a) == "train.batch_size (5 -> 0)");
  std::string may;
  for (const Field& field : fields()) may += field.role != KeyRole::fixed ? field.key + " " : "";
  CHECK(may ==
        "name data.path data.val_path train.steps train.threads train.on_nonfinite eval.every eval.batches "
        "log.every log.layers_every log.layers_first "
        "checkpoint.every ");
}

TEST_CASE("configs/schema.json is current, and every config beside it loads") {
  INFO("run: normscope config --schema > configs/schema.json");
  CHECK(read_file((configs / "schema.json").string()) == json_text(json_schema()));
  int found = 0;
  for (const auto& entry : fs::directory_iterator(configs)) {
    if (entry.path().filename() == "schema.json" || entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    CHECK(read_json(entry.path().string(), "test")["$schema"] == "schema.json");
    CHECK_NOTHROW(load_config(entry.path(), {}, model_only));
    ++found;
  }
  CHECK(found >= 5);
}

TEST_CASE("the deep pair differs in the placement and what follows from it") {
  const RunConfig pre = load_config(configs / "deep_pre.json", {"name=same"}, model_only).config;
  const RunConfig post = load_config(configs / "deep_post.json", {"name=same"}, model_only).config;
  CHECK(keys_that_differ(pre, post) == "model.norm_placement model.final_norm ");
  CHECK(same(pre, load_config(configs / "quickstart.json", {"name=same"}, model_only).config));
}
