// Tests of configs as they are read: ranges, keys, --set, files that extend others, origins, paths, the
// schema.
#include "config_texts.h"

namespace fs = std::filesystem;
using namespace normscope;
using namespace normscope::testing;

namespace {

const fs::path configs = fs::path(NORMSCOPE_SOURCE_DIR) / "configs";

// A folder with a corpus, data/text.txt, and the configs of one test.
struct ConfigFolder : ScratchFolder {
  ConfigFolder() {
    for (const char* name : {"data", "base"}) fs::create_directory(file(name));
    write("data/text.txt", "some text\n");
  }
  std::string text = file("data/text.txt");
};

constexpr const char* whole =
    R"({"data": {"path": "data/text.txt"}, "train": {"steps": 10, "batch_size": 2}})";

std::string refusal_of_file(const std::string& file, const std::vector<std::string>& sets = {}) {
  return message([&] { load_config(file, sets); });
}

}  // namespace

TEST_CASE("1e3 is an integer; 3.7, true and numbers that do not fit are not") {
  CHECK(whole_number(Json::parse("1e3")) == 1000);
  CHECK(whole_number(Json::parse("-7")) == -7);
  CHECK(whole_number(Json::parse("9223372036854775807")) == 9223372036854775807);
  for (const char* text : {"3.7", "true", "\"3\"", "null", "9223372036854775808", "18446744073709551615",
                           "18446744073709551616", "1e30", "-1e30", "[1]"}) {
    CAPTURE(text);
    CHECK_FALSE(whole_number(Json::parse(text)).has_value());
  }
  CHECK(config_of("train.steps=1e3").train.steps == 1000);
}

TEST_CASE("every key refuses values outside its type and range") {
  CHECK(refusal("", R"({"train": {"steps": 3.7}})") ==
        "[config] train.steps: got 3.7; expected integer, 1..10000000 (a.json)");
  CHECK(refusal("model.dropout=0.999 data.val_fraction=0.9") == "no error");
  check_refused({
      {"train.steps=0", "got 0; expected"},
      {"model.dropout=1", "[config] model.dropout: got 1; expected number in [0, 1) (--set)"},
      {"data.val_fraction=0.91", "expected number in [0, 0.9]"},
      {"train.grad_clip=-1", "expected number in [0, 1e+09]"},
      {"model.bias=1", "got 1; expected true | false"},
      {"model.norm=layrnorm", "got \"layrnorm\"; expected layernorm | rmsnorm | batchnorm | groupnorm | "},
      {"model.norm=layrnorm", "| none; did you mean layernorm? (--set)"},
      {"model.norm_placement=pre-norm", "; did you mean pre?"},
      {"model.norm_placement=pre-scale", "; did you mean pre_scaled?"},
      {"train.gemm=blas", "expected auto | openblas | native"},
      {"model.final_norm=maybe", "expected true | false | \"auto\""},
      {"data.path=[]", "expected a file, or a list of files"},
      {"data.path=\"\"", "got \"\"; expected a file"},
      {"model=5", "[config] model: got 5; expected an object of keys (--set)"},
      {"model.norm", "[config] --set: got \"model.norm\"; expected KEY=VALUE, such as model.norm=rmsnorm"},
      {R"(model.init={"std":1,"std":2})", "duplicate key \"std\""},
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

TEST_CASE("numbers that become 0 are refused") {
  check_refused({
      {"train.lr=1e-50",
       "[config] train.lr: got 1e-50, which is 0 in float32; expected 0 or a number of at least 1.5e-45 "
       "(--set)"},
  });
  for (const Field& field : fields()) {
    if (field.allowed.find("number in [0, ") == std::string::npos) continue;
    CAPTURE(field.key);
    RunConfig config;
    CHECK_HOLDS(field.set(config, 1e-60), "which is 0 in float32");
    CHECK(field.set(config, 0.0) == "");
    CHECK(field.set(config, 1e-44) == "");
  }
}

TEST_CASE("the name of a run must do as the name of a folder") {
  CHECK(config_of("").name == "a");
  CHECK(config_of(std::vector<std::string>{"name=post norm=1"}).name == "post norm=1");
  const std::vector<std::string> wrong_names = {"a/b",       "..",   "",  "a\nb",
                                                "a\x1b[31m", "\xFF", "5", std::string(201, 'x')};
  for (const std::string& wrong : wrong_names) {
    CAPTURE(wrong);
    CHECK_HOLDS(refusal("name=" + wrong),
                "; expected text without slash, leading dot or control characters, of at most 200 bytes");
  }
}

TEST_CASE("an unknown key is refused with the nearest known one") {
  check_refused({
      {"train.dropout=0.1", "[config] train.dropout: unknown key; did you mean model.dropout? (--set)"},
      {"model.nhead=4", "did you mean model.n_head?"},
      {"modle={}", "modle: unknown key; did you mean model?"},
      {"chekpoint={}", "did you mean checkpoint?"},
      {"lr=1", "did you mean train.lr?"},
      {"model.lr=1", "did you mean train.lr?"},
      {R"(model.init={"sdt":1})", "model.init.sdt: unknown key; did you mean model.init.std? (--set)"},
      {"zzzzzzzzzzzz=1", "unknown key; `normscope config` lists all"},
      {"extends=b.json", "extends: unknown key"},
  });
  CHECK_HOLDS(refusal("", R"({"model.norm": "none"})"), "an object in an object");
  CHECK(nearest_key("log.every") == "log.every");  // not the first key that ends in `every`
  CHECK(nearest("top_k", std::vector<std::string>{"top-p", "top-k"}) == "top-k");
  CHECK(nearest("x", std::vector<std::string>{"train", "sample"}) == "");
}

TEST_CASE("--set takes JSON, or else a string, and the last value of a key holds") {
  const RunConfig config =
      config_of(R"(model.norm=rmsnorm model.norm_placement=["post","pre"] model.n_layer=2 )"
                R"(name=a=b model.init={"scheme":"xavier_normal","std":0.5} )"
                "train.lr=1 train.lr=2e-3");
  CHECK(config.model.norm == NormKind::rmsnorm);
  CHECK(config.model.norm_placement == std::vector<BlockPlacement>{PlacementKind::post, PlacementKind::pre});
  CHECK(config.name == "a=b");
  CHECK(config.model.init.scheme == InitScheme::xavier_normal);
  CHECK(config.model.init.embed_std == 0.5);  // std is its default with a tied head
  CHECK(config.train.lr == 2e-3);
}

TEST_CASE("all problems are reported at once, and a wrong value once") {
  CHECK(refusal("eval.every=1.5 nope",
                "{\"model\": {\"n_head\": 5, \"d_model\": 64,\n\"nrom\": 1}, \"train\": {\"lr\": \"x\"}}") ==
        "[config] model.nrom: unknown key; did you mean model.norm? (a.json)\n"
        "[config] --set: got \"nope\"; expected KEY=VALUE, such as model.norm=rmsnorm\n"
        "[config] train.lr: got \"x\"; expected number in [0, 100] (a.json)\n"
        "[config] eval.every: got 1.5; expected integer, 0..10000000 (--set)\n"
        "[config] model.n_head: 5 does not divide model.d_model = 64; try 4 or 8 (a.json)");
  CHECK(refusal("", R"({"model": {"n_head": 5, "d_model": "x"}})") ==
        "[config] model.d_model: got \"x\"; expected integer, 1..65536 (a.json)");
}

TEST_CASE("keys without a default must be given, where data is needed") {
  CHECK(message([] { load_config_text("{}", "a.json"); }) ==
        "[config] data.path: missing; expected a file, or a list of files (corpus in UTF-8; a relative path "
        "starts at the config's folder or at the working directory)\n"
        "[config] train.steps: missing; expected integer, 1..10000000 (number of steps)\n"
        "[config] train.batch_size: missing; expected integer, 1..65536 (number of sequences in a "
        "micro-batch, B)");
  const RunConfig config = config_of("");
  CHECK(config.train.steps == 0);
  CHECK(same(config_of("", dump_text(config)), config));
}

TEST_CASE("paths are tried beside the config, then in the working directory") {
  const ConfigFolder folder;
  const std::string file = folder.write("a.json", whole), text = folder.text;
  CHECK(load_config(file).config.data.path == std::vector{text});
  CHECK(load_config(file).config.name == "a");

  // What --set writes counts from the working directory.
  const std::string relative = fs::relative(text).string(), both = "[\"" + relative + "\",\"" + text + "\"]";
  CHECK(load_config(file, {"data.path=" + relative}).config.data.path == std::vector{text});
  CHECK(load_config(file, {"data.val_path=" + relative}).config.data.val_path == text);
  CHECK(load_config(file, {"data.path=" + both}).config.data.path == std::vector{text, text});

  const std::string here = (fs::current_path() / "no.txt").lexically_normal().string();
  const std::string missing =
      folder.write("c.json", R"({"data": {"path": "no.txt"}, "train": {"steps": 1, "batch_size": 1}})");
  CHECK(refusal_of_file(missing) == "[config] data.path: no such file: neither " + folder.file("no.txt") +
                                        " nor " + here + " (" + missing + ")");
  CHECK(refusal_of_file(file, {"data.path=no.txt"}) ==
        "[config] data.path: no such file: " + here + " (--set)");
  CHECK_HOLDS(refusal_of_file(file, {"data.path=/"}), "/ is a folder");
  CHECK_NOTHROW(load_config(missing, {}, {.need_data = false}));
}

TEST_CASE("extends merges deeply, and origins say from where") {
  const ConfigFolder folder;
  const std::string one = folder.write("base/one.json", R"({
    "data": {"path": "../data/text.txt"},
    "model": {"n_layer": 3, "norm_placement": ["pre", "post", "pre"], "init": {"std": 0.1}},
    "train": {"steps": 5, "batch_size": 2, "momentum": 0.9}
  })");
  const std::string two = folder.write(
      "two.json", R"({"$schema": "s", "extends": "base/one.json", "model": {"init": {"embed_std": 2}}})");
  const std::string three = folder.write("three.json", R"({
    "extends": "two.json",
    "model": {"n_layer": 2, "norm_placement": ["post", "pre"], "norm_groups": 8}
  })");
  const Loaded loaded = load_config(three, {"train.lr=0.5"});
  const ModelConfig& model = loaded.config.model;
  CHECK(model.n_layer == 2);
  CHECK(model.norm_placement ==
        std::vector<BlockPlacement>{PlacementKind::post, PlacementKind::pre});  // a list is replaced whole
  CHECK(model.init.std == 0.1);
  CHECK(model.init.embed_std == 2);
  CHECK(loaded.config.name == "three");
  CHECK(loaded.config.data.path == std::vector{folder.text});  // from the folder of the file that writes it

  const std::pair<const char*, std::string> origins[] = {
      {"model.n_layer", three}, {"model.init.embed_std", two},      {"train.steps", one},
      {"train.lr", "--set"},    {"train.min_lr", "default: lr/10"}, {"model.d_ff", "default: 4*d_model"},
      {"train.seed", "default"}};
  for (const auto& [key, origin] : origins) CHECK(loaded.origins.at(key) == origin);
  CHECK(loaded.origins.size() == fields().size());
  // The momentum of a base file is no mistake of the user.
  CHECK(loaded.without_effect == std::vector<std::string>{"model.norm_groups (" + three + ": only groupnorm has groups)"});
}

TEST_CASE("files that are no config, and what they extend, are refused") {
  const ConfigFolder folder;
  const std::pair<std::string, const char*> files[] = {
      {"[1]", "a.json: got [1]; expected an object"},
      {std::string(2'000'000, ' '), "is larger than"},
      {R"({"extends": "./a.json"})", "extends: a circle, or more than 16 configs"},
      {R"({"extends": 3})", "extends: got 3; expected the file of a config"}};
  for (const auto& [bytes, part] : files) CHECK_HOLDS(refusal_of_file(folder.write("a.json", bytes)), part);
}

TEST_CASE("a dumped config has the value of every key, and lists those without effect") {
  const ConfigFolder folder;
  const Sets sets("train.seed=9007199254740991 model.branch_scale=L^-0.123456789");
  const RunConfig config = load_config(folder.write("a.json", whole), sets).config;
  const Json dumped = dump(config);
  for (const Field& field : fields()) {
    std::string pointer = "/" + field.key;
    std::ranges::replace(pointer, '.', '/');
    CHECK(dumped.at(Json::json_pointer(pointer)) == field.get(config));
    CHECK(std::ranges::count(dumped[idle_keys], Json(field.key)) == !field.is_used(config));
  }
  CHECK(dumped["model"]["norm_placement"] == "pre");
  CHECK(dumped["model"]["branch_scale"] == "L^-0.123456789");
  CHECK(dumped["data"]["path"] == folder.text);
  CHECK(dumped.begin().key() == "name");
}

TEST_CASE("keys that differ are named, and only some may differ on resume") {
  const RunConfig a = config_of(""), b = config_of("train.steps=5 model.norm=rmsnorm log.every=1 name=b");
  // The bias follows from the norm.
  CHECK(keys_that_differ(a, b) == "name model.norm model.norm_bias train.steps log.every ");
  CHECK(fixed_differences(a, b) == R"(model.norm ("layernorm" -> "rmsnorm"))");
  CHECK(fixed_differences(config_of("train.batch_size=5"), a) == "train.batch_size (5 -> 0)");
  std::string may;
  for (const Field& field : fields()) may += field.role != KeyRole::fixed ? field.key + " " : "";
  CHECK(may ==
        "name data.path data.val_path train.steps train.threads train.on_nonfinite eval.every eval.batches "
        "log.every log.layers_every log.layers_first checkpoint.every checkpoint.keep_every ");
}

TEST_CASE("configs/schema.json is current, and every config beside it loads") {
  INFO("run: normscope config --schema > configs/schema.json");
  CHECK(read_file((configs / "schema.json").string()) == json_text(json_schema()));
  int loaded = 0;
  for (const auto& entry : fs::directory_iterator(configs)) {
    if (entry.path().filename() == "schema.json" || entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    CHECK(read_json(entry.path().string(), "test")["$schema"] == "schema.json");
    CHECK_NOTHROW(load_config(entry.path(), {}, {.need_data = false}));
    ++loaded;
  }
  CHECK(loaded >= 5);
}

TEST_CASE("the deep pair differs in the placement and what follows from it") {
  const auto shipped = [](const char* file) {
    return load_config(configs / file, {"name=same"}, {.need_data = false}).config;
  };
  CHECK(keys_that_differ(shipped("deep_pre.json"), shipped("deep_post.json")) ==
        "model.norm_placement model.final_norm ");
  CHECK(same(shipped("deep_pre.json"), shipped("quickstart.json")));
}
