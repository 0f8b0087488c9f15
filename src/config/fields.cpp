#include "config/fields.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>

#include "config/patterns.h"
#include "core/error.h"

namespace normscope {
namespace {

constexpr Index max_steps = 10'000'000;
constexpr Index max_width = 65536;
constexpr Index max_seed = (Index{1} << 53) - 1;  // any JSON reader keeps it exactly

using Config = const RunConfig&;

// True if a sublayer has a placement with the property.
template <class Property>
bool any_placement(const RunConfig& c, const Property& has) {
  return std::ranges::any_of(named_placements(c.model),
                             [&](const Placement* row) { return std::invoke(has, *row); });
}

// --- the conditions of an effect ---

const NormRow& norm_of(Config c) { return norm_row(c.model.norm); }
bool has_schedule(Config c) { return c.train.steps == 0 || c.train.warmup_steps + 1 < c.train.steps; }
bool is_wsd(Config c) { return c.train.schedule == ScheduleKind::wsd; }
bool is_gpt2(Config c) { return c.model.init.scheme == InitScheme::gpt2; }

template <OptimizerKind... kinds>
Condition optimizer_is_one_of() {
  std::string names;
  ((names += (names.empty() ? "" : " and ") + std::string(name_of(kinds))), ...);
  return {[](Config c) { return ((c.train.optimizer == kinds) || ...); },
          "only optimizers " + names + " have it"};
}

const Condition placement_has_norms = {[](Config c) { return any_placement(c, &Placement::has_norms); },
                                       "the placement has no norms"};
const Condition has_norm = {[](Config c) { return c.model.norm != NormKind::none; }, "there is no norm"};
const Condition norm_has_eps_outside = {[](Config c) { return norm_of(c).has_eps_outside; },
                                        "this norm has no such form"};
const Condition some_norm_divides = {
    [](Config c) { return norm_of(c).has_statistics() || c.model.qk_norm || c.model.qkv_norm; },
    "no norm divides by a deviation"};
const Condition epsilon_is_positive = {[](Config c) { return c.model.norm_eps > 0; }, "norm_eps is 0"};
const Condition norm_has_bias = {[](Config c) { return norm_of(c).has_bias && c.model.norm_affine; },
                                 "this norm has no bias"};
const Condition norm_has_groups = {[](Config c) { return norm_of(c).over == NormOver::groups; },
                                   "only groupnorm has groups"};
const Condition norm_has_alpha = {[](Config c) { return norm_of(c).has_alpha; },
                                  "only dyt and derf have alpha"};
const Condition norm_has_detached = {[](Config c) { return norm_of(c).has_detached; },
                                     "only norms over the features of a token have a detached form"};
const Condition embed_norm_is_free = {[](Config c) { return !c.model.norm_placement[0].attn->embed_norm; },
                                      "the placement has this norm already"};
const Condition inner_norm_is_free = {
    [](Config c) { return any_placement(c, std::not_fn(&Placement::inner_norm)); },
    "every sublayer has this norm already by its placement"};
const Condition qkv_norm_is_free = {[](Config c) { return !c.pattern || !c.pattern->qkv_norm; },
                                    "the placement has this norm already"};
const Condition no_qkv_norm = {[](Config c) { return !c.model.qkv_norm; },
                               "qkv_norm normalises queries and keys too"};
const Condition is_mix = {[](Config c) { return c.pattern && c.pattern->first_blocks == mixed_blocks; },
                          "only placement mix has it"};
const Condition branch_scale_is_free = {
    [](Config c) { return any_placement(c, std::not_fn(&Placement::learned_scale)); },
    "every sublayer has a scale of its own by its placement"};
const Condition scheme_is_gpt2 = {is_gpt2, "only scheme gpt2 has it"};
// The embeddings of a tied head default to std; equal to it, they are taken for that default.
const Condition std_is_read = {
    [](Config c) { return is_gpt2(c) || (c.model.tie_embeddings && c.model.init.embed_std == c.model.init.std); },
    "only scheme gpt2 and the default of a tied head's embed_std take it"};
const Condition branches_are_drawn = {[](Config c) { return !c.model.init.zero_branches; },
                                      "zero_branches sets these matrices to 0"};
const Condition has_validation = {
    [](Config c) { return c.data.val_fraction > 0 || !c.data.val_path.empty(); },
    "there is no validation text"};
const Condition splits_text = {[](Config c) { return c.data.val_path.empty(); },
                               "val_path is the validation text"};
const Condition evaluates_often = {[](Config c) { return c.eval.every > 0; },
                                   "the one evaluation, at the end, takes the whole split"};
const Condition rate_has_schedule = {has_schedule,
                                     "at most one step follows the warm-up, and it trains at lr"};
const Condition schedule_is_wsd = {is_wsd, "only schedule wsd has it"};
const Condition rate_falls_to_min = {rate_falls, "the rate never falls"};
const Condition has_adam_moments = optimizer_is_one_of<OptimizerKind::adamw, OptimizerKind::muon>();
const Condition has_momentum = optimizer_is_one_of<OptimizerKind::sgd, OptimizerKind::muon>();

// --- defaults that depend on other keys ---

void default_d_ff(RunConfig& c) { c.model.d_ff = 4 * c.model.d_model; }
void default_ffn_bias(RunConfig& c) { c.model.ffn_bias = c.model.bias; }
void default_momentum(RunConfig& c) {
  c.train.momentum = c.train.optimizer == OptimizerKind::muon ? 0.95 : 0.0;
}
// Rounds to 15 digits: a tenth of 0.003 is 0.0003 and not 0.00030000000000000003.
void default_min_lr(RunConfig& c) {
  c.train.min_lr = std::strtod(text(std::setprecision(15), c.train.lr / 10).c_str(), nullptr);
}
void default_final_norm(RunConfig& c) {
  c.model.final_norm = c.pattern || c.model.norm_placement.back().ffn->final_norm;
}
// A tied head's embeddings default to std under every scheme.
void default_embed_std(RunConfig& c) {
  c.model.init.embed_std = is_gpt2(c) || c.model.tie_embeddings ? c.model.init.std : 1.0;
}
// Some placements bound the growth of the stream in their own way.
void default_residual_scaling(RunConfig& c) {
  c.model.init.residual_scaling = !any_placement(c, std::not_fn(&Placement::residual_scaling));
}

// --- the table ---

// A pattern's name stands for the list of its blocks.
Field with_patterns(Field list) {
  Field field = list;
  field.get = [=](Config c) { return c.pattern ? c.pattern->name : list.get(c); };
  field.set = [=](RunConfig& c, const Json& given) {
    const Pattern* pattern = given.is_string() ? find_pattern(given.get<std::string>()) : nullptr;
    const std::string wrong = list.set(c, pattern ? written(pattern->blocks(c)) : given);
    if (wrong.empty()) c.pattern = pattern;
    return wrong;
  };
  return field;
}

// A function from a RunConfig, const or not, to a reference to its member or, by a path of members, to a
// section's.
auto at(auto... path) {
  return [=](auto& config) -> auto& { return (config.*....*path); };
}
auto model(auto member) { return at(&RunConfig::model, member); }
auto init(auto member) { return at(&RunConfig::model, &ModelConfig::init, member); }
auto data(auto member) { return at(&RunConfig::data, member); }
auto train(auto member) { return at(&RunConfig::train, member); }
auto eval(auto member) { return at(&RunConfig::eval, member); }
auto logs(auto member) { return at(&RunConfig::log, member); }

using M = ModelConfig;
using I = InitConfig;
using T = TrainConfig;

const std::vector<Field> table = {
    row("name", at(&RunConfig::name), run_name(), "name of the run, whose folder is runs/<name>",
        {.default_to = {"the file's stem"}, .role = KeyRole::bookkeeping}),

    // The shape of the model.
    row("model.n_layer", model(&M::n_layer), integer(1, 1024), "number of blocks, L",
        {.label = "L {}", .other_names = {"num_layers", "num_hidden_layers", "depth"}}),
    row("model.n_head", model(&M::n_head), integer(1, max_width),
        "number of attention heads, H; it must divide d_model", {.other_names = {"num_heads"}}),
    row("model.d_model", model(&M::d_model), integer(1, max_width), "width of the residual stream, C",
        {.label = "C {}", .other_names = {"n_embd", "hidden_size"}}),
    row("model.d_ff", model(&M::d_ff), integer(1, max_width), "width of the FFN, F",
        {.default_to = {"4*d_model", default_d_ff}}),
    row("model.context", model(&M::context), integer(1, max_width), "number of characters of context, T",
        {.label = "T {}", .other_names = {"block_size", "seq_len"}}),

    // Norms.
    row("model.mix_post_fraction", at(&RunConfig::mix_post_fraction), number(0, 1),
        "share of the blocks, from the first, that placement mix makes post", {.needs = {{is_mix}}}),
    with_patterns(row("model.norm_placement", model(&M::norm_placement), placements(),
                      "place of the norms around attention and FFN; a list's first block decides whether "
                      "embeddings have a norm, "
                      "its last the default of final_norm, and all together that of init.residual_scaling",
                      {.label = "{}"})),
    row("model.norm", model(&M::norm), one_of<NormKind>(),
        "kind of norm; a placement without norms makes it none",
        {.needs = {{placement_has_norms, "none"}}, .label = "{}"}),
    row("model.norm_eps", model(&M::norm_eps), number(0, 1), "epsilon in the divisor of a norm",
        {.needs = {{some_norm_divides}}}),
    row("model.norm_eps_outside", model(&M::norm_eps_outside), boolean(),
        "whether norms divide by sqrt(var) + eps instead of sqrt(var + eps); qk_norm and qkv_norm never do",
        {.needs = {{norm_has_eps_outside}, {epsilon_is_positive}}}),
    row("model.norm_affine", model(&M::norm_affine), boolean(),
        "whether norms have a gain and a bias; dyt keeps alpha, and derf alpha and shift, in any case",
        {.needs = {{has_norm}}}),
    row("model.norm_bias", model(&M::norm_bias), boolean(),
        "whether norms have a bias; rmsnorm never has one", {.needs = {{norm_has_bias, false}}}),
    row("model.norm_groups", model(&M::norm_groups), integer(1, max_width),
        "number of groups into which groupnorm divides the features", {.needs = {{norm_has_groups}}}),
    row("model.final_norm", model(&M::final_norm), boolean_or_auto(),
        "whether there is a norm before the head",
        {.default_to = {"as the placement of the last block's FFN has it; true with a pattern",
                        default_final_norm},
         .takes_auto = true,
         .needs = {{has_norm, false}}}),
    row("model.embed_norm", model(&M::embed_norm), boolean(),
        "whether there is a norm on the embeddings, before block 1",
        {.needs = {{has_norm, false}, {embed_norm_is_free, true}}}),
    row("model.norm_alpha", model(&M::norm_alpha), number(0, 100), "initial alpha of dyt and derf",
        {.needs = {{norm_has_alpha}}}),
    row("model.norm_detach", model(&M::norm_detach), boolean(),
        "whether the backward pass treats a norm's mean and deviation as constants; those of qk_norm "
        "and qkv_norm never are",
        {.needs = {{norm_has_detached}}}),
    row("model.qk_norm", model(&M::qk_norm), boolean(),
        "whether RMSNorm normalises each head's queries and keys", {.needs = {{no_qkv_norm}}}),
    row("model.qkv_norm", model(&M::qkv_norm), boolean(),
        "whether RMSNorm normalises each head's queries, keys and values",
        {.needs = {{qkv_norm_is_free, true}}}),
    row("model.inner_norm", model(&M::inner_norm), boolean(),
        "whether there is a norm before attn.out and before ffn.out",
        {.needs = {{has_norm, false}, {inner_norm_is_free, true}}}),

    // The residual stream and its branches.
    row("model.residual", model(&M::residual), boolean(),
        "whether a sublayer's input is added to its output; false makes x + F(x) into F(x)"),
    row("model.branch_scale", model(&M::branch_scale), depth_factor(),
        "factor on each sublayer's output, or its initial value if it is learned",
        {.needs = {{branch_scale_is_free}}}),
    row("model.branch_scale_learned", model(&M::branch_scale_learned), one_of<LearnedScale>(),
        "whether branch_scale is learned: a scalar a sublayer (SkipInit) or a vector (LayerScale)",
        {.needs = {{branch_scale_is_free}}}),
    row("model.activation", model(&M::activation), one_of<Activation>(),
        "activation of the FFN; gelu is the form with erf", {.label = "{}"}),
    row("model.bias", model(&M::bias), boolean(),
        "whether attention's linear layers have biases, and by default the FFN's; the head never has one"),
    row("model.ffn_bias", model(&M::ffn_bias), boolean(), "whether the FFN's linear layers have biases",
        {.default_to = {"bias", default_ffn_bias}}),
    row("model.position", model(&M::position), one_of<Position>(), "position encoding"),
    row("model.tie_embeddings", model(&M::tie_embeddings), boolean(),
        "whether the head's matrix is the token embedding"),
    row("model.dropout", model(&M::dropout), number(0, 1, High::open),
        "probability that an element is dropped in training"),

    // Initial values.
    row("model.init.scheme", init(&I::scheme), one_of<InitScheme>(), "distribution of the initial weights",
        {.label = "{}"}),
    row("model.init.std", init(&I::std), number(0, 100),
        "standard deviation of matrices under scheme gpt2, before residual_scaling", {.needs = {{std_is_read}}}),
    row("model.init.embed_std", init(&I::embed_std), number(0, 100),
        "standard deviation of token and position embeddings",
        {.default_to = {"std with scheme gpt2 or a tied head, else 1", default_embed_std}}),
    row("model.init.residual_scaling", init(&I::residual_scaling), boolean(),
        "whether scheme gpt2 draws attn.out and ffn.out with std/sqrt(2L)",
        {.default_to = {"true with scheme gpt2, but false with placements that bound the growth themselves",
                        default_residual_scaling},
         .needs = {{scheme_is_gpt2, false}, {branches_are_drawn, false}}}),
    row("model.init.zero_branches", init(&I::zero_branches), boolean(),
        "whether attn.out and ffn.out start at 0"),

    // The text.
    row("data.path", data(&DataConfig::path), paths(),
        "corpus in UTF-8; a relative path starts at the config's folder or at the working directory",
        {.required = true, .role = KeyRole::text, .label = "{}", .other_names = {"dataset"}}),
    row("data.val_fraction", data(&DataConfig::val_fraction), number(0, 0.9),
        "share of the corpus, at its end, that is kept for validation", {.needs = {{splits_text}}}),
    row("data.val_path", data(&DataConfig::val_path), optional_path(),
        "validation text that replaces the end of the corpus", {.role = KeyRole::text}),

    // Training.
    row("train.steps", train(&T::steps), integer(1, max_steps), "number of steps",
        {.required = true,
         .role = KeyRole::free_on_resume,
         .label = "{} steps",
         .other_names = {"max_iters", "max_steps", "epochs"}}),
    row("train.batch_size", train(&T::batch_size), integer(1, max_width),
        "number of sequences in a micro-batch, B",
        {.required = true, .label = "batch {}", .other_names = {"batch"}}),
    row("train.grad_accum", train(&T::grad_accum), integer(1, 1024), "number of micro-batches in a step",
        {.other_names = {"gradient_accumulation_steps"}}),
    row("train.seed", train(&T::seed), integer(0, max_seed), "seed of weights, batches and dropout"),
    row("train.precision", train(&T::precision), one_of<Precision>(),
        "precision of the operands of the products of linear layers and of attention",
        {.label = "{}", .other_names = {"dtype"}}),
    row("train.gemm", train(&T::gemm), one_of<GemmProvider>(),
        "implementation of the matrix products of linear layers and of Muon"),
    row("train.threads", train(&T::threads), integer(0, 1024),
        "number of threads; 0: at most OpenMP's number and the container's quota, by trial",
        {.role = KeyRole::bookkeeping}),
    row("train.on_nonfinite", train(&T::on_nonfinite), one_of<OnNonfinite>(),
        "action at a loss, gradient or batch moment that is not finite: stop the run, or skip the update",
        {.role = KeyRole::free_on_resume}),
    row("train.optimizer", train(&T::optimizer), one_of<OptimizerKind>(),
        "optimizer, with decoupled weight decay; muon updates the blocks' matrices, adamw the rest",
        {.label = "{}"}),
    row("train.lr", train(&T::lr), number(0, 100), "learning rate after the warm-up",
        {.other_names = {"learning_rate"}}),
    row("train.min_lr", train(&T::min_lr), number(0, 100),
        "final learning rate of cosine, linear and wsd; a later file or --set that gives lr alone sets it to lr/10",
        {.default_to = {"lr/10", default_min_lr}, .follows = "train.lr", .needs = {{rate_falls_to_min}}}),
    row("train.schedule", train(&T::schedule), one_of<ScheduleKind>(),
        "learning-rate schedule after the warm-up; if a single step follows, it trains at lr",
        {.needs = {{rate_has_schedule}}}),
    row("train.warmup_steps", train(&T::warmup_steps), integer(0, max_steps),
        "number of steps in which the rate rises linearly to lr",
        {.label = "warm-up {}", .other_names = {"warmup_iters"}}),
    row("train.cooldown", train(&T::cooldown), number(0, 1),
        "share of the steps after the warm-up in which wsd lowers the rate linearly to min_lr",
        {.needs = {{rate_has_schedule}, {schedule_is_wsd}}}),
    row("train.branch_warmup_steps", train(&T::branch_warmup_steps), integer(0, max_steps),
        "branch warm-up: at step s the branches of block l are multiplied by "
        "min(s/(branch_warmup_steps*l), 1); 0: off",
        {.label = "branch warm-up {}"}),
    row("train.fixed_batch", train(&T::fixed_batch), boolean(),
        "every step trains on step 1's micro-batches, so a model that can learn drives its loss to 0; "
        "dropout still draws new masks"),
    row("train.beta1", train(&T::beta1), number(0, 1, High::open),
        "decay of the first moment in adamw and muon", {.needs = {{has_adam_moments}}}),
    row("train.beta2", train(&T::beta2), number(0, 1, High::open),
        "decay of the second moment in adamw and muon", {.needs = {{has_adam_moments}}}),
    row("train.adam_eps", train(&T::adam_eps), number(0, 1),
        "epsilon added to the root of the second moment in adamw and muon", {.needs = {{has_adam_moments}}}),
    row("train.momentum", train(&T::momentum), number(0, 1, High::open),
        "factor of m = momentum*m + g in sgd and muon",
        {.default_to = {"0.95 with muon, else 0", default_momentum}, .needs = {{has_momentum}}}),
    row("train.weight_decay", train(&T::weight_decay), number(0, 100),
        "weight decay of all matrices, embeddings included"),
    row("train.grad_clip", train(&T::grad_clip), number(0, 1e9),
        "norm to which a larger gradient of the whole model is scaled; 0: off"),

    // Evaluation, logs and checkpoints.
    row("eval.every", eval(&EvalConfig::every), integer(0, max_steps),
        "number of steps between evaluations; 0: only at the end",
        {.role = KeyRole::free_on_resume,
         .needs = {{has_validation}},
         .label = "evaluated every {}",
         .other_names = {"eval_interval"}}),
    row("eval.batches", eval(&EvalConfig::batches), integer(0, max_steps),
        "number of batches in an evaluation; 0: the whole split",
        {.role = KeyRole::free_on_resume,
         .needs = {{has_validation}, {evaluates_often}},
         .label = "evaluated on {} batches",
         .other_names = {"eval_iters"}}),
    row("log.every", logs(&LogConfig::every), integer(1, max_steps),
        "number of steps between rows of metrics.csv",
        {.role = KeyRole::bookkeeping, .other_names = {"log_interval"}}),
    row("log.layers_every", logs(&LogConfig::layers_every), integer(0, max_steps),
        "number of steps between rows of layers.csv, params.csv and heads.csv; 0: off",
        {.role = KeyRole::bookkeeping}),
    row("log.layers_first", logs(&LogConfig::layers_first), integer(0, max_steps),
        "number of first steps that are logged one by one; step 1 always is", {.role = KeyRole::bookkeeping}),
    row("checkpoint.every", at(&RunConfig::checkpoint, &CheckpointConfig::every), integer(0, max_steps),
        "number of steps between checkpoints; 0: only at the end and when interrupted",
        {.role = KeyRole::bookkeeping}),
    row("checkpoint.keep_every", at(&RunConfig::checkpoint, &CheckpointConfig::keep_every),
        integer(0, max_steps),
        "number of steps between weights that stay, as weights/step_<s>.safetensors, beside those of step 0 "
        "and of "
        "each power of two; 0: none",
        {.role = KeyRole::bookkeeping}),
};

}  // namespace

const std::vector<Field>& fields() { return table; }

bool rate_falls(const RunConfig& c) {
  return has_schedule(c) && c.train.schedule != ScheduleKind::constant &&
         !(is_wsd(c) && c.train.cooldown == 0);
}

std::set<const Placement*> named_placements(const ModelConfig& config) {
  std::set<const Placement*> rows;
  for (const auto& [attn, ffn] : config.norm_placement) rows.insert({attn, ffn});
  return rows;
}

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(fields(), key, &Field::key);
  return found == fields().end() ? nullptr : &*found;
}

std::string nearest_key(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  if (find_field(plain)) return plain;
  const std::string_view leaf = leaf_name(plain);
  std::vector<std::string> whole, leaves;
  for (const Field& field : fields()) {
    leaves.emplace_back(leaf_name(field.key));  // the section may be wrong or missing
    if (leaf == leaves.back() || std::ranges::count(field.other_names, leaf)) return field.key;
    whole.insert(whole.end(), {field.key.substr(0, field.key.rfind('.')), field.key});  // the section, too
  }
  if (const std::string key = nearest(plain, whole); !key.empty()) return key;
  const auto found = std::ranges::find(leaves, nearest(leaf, leaves));
  return found == leaves.end() ? "" : fields()[found - leaves.begin()].key;
}

}  // namespace normscope
