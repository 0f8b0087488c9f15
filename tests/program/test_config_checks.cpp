// Tests that combinations of config keys that are impossible, train nothing or mean nothing are refused, and
// that their neighbours are not.
#include "config_texts.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

struct Combination {
  std::string refused;
  std::string begin, hint;              // of the one line that refuses it
  std::vector<std::string> neighbours;  // changes that each undo a cause, so that the config is accepted
};

const Combination combinations[] = {
    {"model.norm=instancenorm model.context=1",
     "[config] model.norm: instancenorm with model.context = 1",
     "normalises a single number, which erases it; use model.context > 1 or another norm",
     {"model.context=2", "model.norm=layernorm", "model.norm_placement=none"}},
    {"model.norm=groupnorm model.d_model=6 model.norm_groups=6",
     "[config] model.norm_groups: groupnorm with model.d_model/model.norm_groups = 1",
     "or another norm",
     {"model.norm_groups=3", "model.norm=rmsnorm", "model.d_model=12"}},
    {"model.norm=layernorm model.d_model=1 model.n_head=1",
     "[config] model.d_model: layernorm with model.d_model = 1",
     "use model.d_model > 1",
     {"model.d_model=2", "model.norm=dyt", "model.norm=batchnorm", "model.norm_placement=rezero"}},
    {"model.qk_norm=true model.d_model=6 model.n_head=6",
     "[config] model.qk_norm: true with heads of one feature (n_head = d_model = 6)",
     "use fewer heads",
     {"model.n_head=3", "model.qk_norm=false"}},
    {"model.n_layer=2 model.norm_placement=[\"pre\",\"deepnorm\"] model.residual=false",
     "[config] model.residual: false with placement deepnorm",
     "use placement post",
     {"model.norm_placement=post", "model.residual=true"}},
    {"model.branch_scale=0",
     "[config] model.branch_scale: 0 switches every branch off",
     "to start at 0 and learn the scale, set model.branch_scale_learned=scalar",
     {"model.branch_scale=1", "model.branch_scale_learned=scalar"}},
    {"model.branch_scale=0 model.branch_scale_learned=vector model.residual=false",
     "[config] model.branch_scale: 0 without the residual",
     "which learns nothing",
     {"model.branch_scale=1", "model.residual=true"}},
    {"model.norm=groupnorm model.norm_groups=4 model.inner_norm=true model.d_ff=6",
     "[config] model.norm_groups: 4 does not divide model.d_ff = 6",
     "try 3 or 6",
     {"model.d_ff=8", "model.norm_groups=2", "model.inner_norm=false"}},
    {"model.norm=batchnorm model.context=1 train.batch_size=1",
     "[config] model.norm: batchnorm with train.batch_size*model.context = 1",
     "use train.batch_size*model.context > 1",
     {"model.context=2", "train.batch_size=2"}},
    // A norm of zeros without epsilon diverges at the first step.
    {"model.norm_eps=0 model.init.zero_branches=true model.norm_placement=sandwich",
     "[config] model.init.zero_branches: true makes the branches 0",
     "use an epsilon > 0",
     {"model.norm_eps=1e-5", "model.init.zero_branches=false", "model.norm_placement=keel",
      "model.norm=dyt"}},
    {"train.adam_eps=0", "[config] train.adam_eps: 0 leaves AdamW 0/0", "use an epsilon > 0",
     {"train.adam_eps=1e-12", "train.optimizer=sgd"}},
    {"model.d_model=64 model.n_head=5",
     "[config] model.n_head: 5 does not divide model.d_model = 64",
     "try 4 or 8",
     {"model.n_head=8", "model.d_model=65"}},
    {"model.d_model=64 model.n_head=100", "[config] model.n_head: 100", "try 64 (", {"model.n_head=64"}},
    {"model.d_model=7 model.n_head=6", "[config] model.n_head: 6", "try 1 or 7", {"model.n_head=7"}},
    {"model.d_model=15 model.n_head=3 model.position=rope",
     "[config] model.position: rope ",
     "d_model/n_head = 5 wide",
     {"model.d_model=18", "model.position=learned"}},
    {"model.d_model=15 model.n_head=3 model.position=sinusoidal",
     "[config] model.position: sinusoidal needs an even model.d_model",
     "got 15; try 16",
     {"model.d_model=18", "model.position=learned"}},
    {"train.min_lr=1",
     "[config] train.min_lr: 1 is above train.lr = 0.001",
     "",
     {"train.lr=1", "train.warmup_steps=100 train.steps=10"}},  // then the rate only rises
};

}  // namespace

TEST_CASE("combinations that cannot be trained, or train nothing, are refused in one line, with the fix") {
  for (const Combination& combination : combinations) {
    const std::string message = refusal(combination.refused);
    CAPTURE(combination.refused);
    CAPTURE(message);
    CHECK(message.starts_with(combination.begin));
    CHECK(holds(message, combination.hint));
    CHECK(message.ends_with("(--set)"));
    CHECK(!holds(message, "\n"));
    for (const std::string& neighbour : combination.neighbours) {
      CAPTURE(neighbour);
      CHECK(refusal(combination.refused + " " + neighbour) == "no error");
    }
  }
}

TEST_CASE("a norm that another choice drops is not judged") {
  for (const Placement& row : placement_table()) {
    CAPTURE(row.name);
    const std::string placement = std::string("model.norm_placement=") + row.name;
    CHECK(refusal(placement + " model.norm=none model.d_model=1 model.n_head=1 model.context=1") ==
          "no error");
    for (const NormRow& norm : norm_table())
      CHECK(refusal(placement + " model.norm=" + norm.name) == "no error");
  }
}
