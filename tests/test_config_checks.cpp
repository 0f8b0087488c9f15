// Combinations of config keys that would train nothing, or mean nothing, are refused; their neighbours are
// not.
#include <doctest/doctest.h>

#include "config/load.h"
#include "messages.h"

using namespace normscope;
using namespace normscope::testing;
using Sets = std::vector<std::string>;

namespace {

// What is said of the defaults with `sets`; every refusal is the user's, exit 2.
std::string said_of(const Sets& sets) {
  return message([&] { load_config_text("{}", "a.json", sets, {.need_data = false}); }, "accepted");
}

struct Combination {
  Sets refused;
  std::string begin, hint;       // of the one line that refuses it
  std::vector<Sets> neighbours;  // each undoes one of the causes, and is accepted
};

const Combination combinations[] = {
    {{"model.norm=instancenorm", "model.context=1"},
     "[config] model.norm: instancenorm with model.context = 1",
     "raise model.context, or use another norm",
     {{"model.context=2"}, {"model.norm=layernorm"}, {"model.norm_placement=none"}}},
    {{"model.norm=groupnorm", "model.d_model=6", "model.norm_groups=6"},
     "[config] model.norm_groups: groupnorm with model.d_model/model.norm_groups = 1",
     "or use another norm",
     {{"model.norm_groups=3"}, {"model.norm=rmsnorm"}, {"model.d_model=12"}}},
    {{"model.norm=layernorm", "model.d_model=1", "model.n_head=1"},
     "[config] model.d_model: layernorm with model.d_model = 1",
     "raise model.d_model",
     {{"model.d_model=2"}, {"model.norm=dyt"}, {"model.norm=batchnorm"}, {"model.norm_placement=rezero"}}},
    {{"model.qk_norm=true", "model.d_model=6", "model.n_head=6"},
     "[config] model.qk_norm: true with heads of one feature (n_head = d_model = 6)",
     "use fewer heads",
     {{"model.n_head=3"}, {"model.qk_norm=false"}}},
    {{"model.n_layer=2", "model.norm_placement=[\"pre\",\"deepnorm\"]", "model.residual=false"},
     "[config] model.residual: false with placement deepnorm",
     "use placement post",
     {{"model.norm_placement=post"}, {"model.residual=true"}}},
    {{"model.branch_scale=0"},
     "[config] model.branch_scale: 0 leaves no branches",
     "with model.branch_scale_learned=scalar it is a start",
     {{"model.branch_scale=1"}, {"model.branch_scale_learned=scalar"}}},
    {{"model.branch_scale=0", "model.branch_scale_learned=vector", "model.residual=false"},
     "[config] model.branch_scale: 0 without the residual",
     "which learns nothing",
     {{"model.branch_scale=1"}, {"model.residual=true"}}},
    {{"model.norm=groupnorm", "model.norm_groups=4", "model.inner_norm=true", "model.d_ff=6"},
     "[config] model.norm_groups: 4 does not divide model.d_ff = 6",
     "try 3 or 6",
     {{"model.d_ff=8"}, {"model.norm_groups=2"}, {"model.inner_norm=false"}}},
    {{"model.norm=batchnorm", "model.context=1", "train.batch_size=1"},
     "[config] model.norm: batchnorm with train.batch_size*model.context = 1",
     "raise train.batch_size",
     {{"model.context=2"}, {"train.batch_size=2"}}},
};

}  // namespace

TEST_CASE("combinations that train nothing are refused in one line, with the fix") {
  for (const Combination& combination : combinations) {
    const std::string said = said_of(combination.refused);
    CAPTURE(said);
    CHECK(said.starts_with(combination.begin));
    CHECK(said.find(combination.hint) != std::string::npos);
    CHECK(said.ends_with("(--set)"));
    CHECK(said.find('\n') == std::string::npos);
    for (const Sets& neighbour : combination.neighbours) {
      Sets sets = combination.refused;
      sets.insert(sets.end(), neighbour.begin(), neighbour.end());
      CAPTURE(neighbour[0]);
      CHECK(said_of(sets) == "accepted");
    }
  }
}

TEST_CASE("a norm that another choice drops is not judged") {
  for (const Placement& row : placement_table()) {
    CAPTURE(row.name);
    const std::string placement = std::string("model.norm_placement=") + row.name;
    if (!row.qkv_norm) {  // which is judged, whatever the norm
      CHECK(said_of({placement, "model.norm=none", "model.d_model=1", "model.n_head=1", "model.context=1"}) ==
            "accepted");
    }
    for (const NormRow& norm : norm_table())
      CHECK(said_of({placement, std::string("model.norm=") + norm.name}) == "accepted");
  }
}
