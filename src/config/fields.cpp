#include "config/fields.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>

#include "core/error.h"

namespace normscope {
namespace {

constexpr Index max_steps = 10'000'000;
constexpr Index max_width = 65536;
constexpr Index max_seed = (Index{1} << 53) - 1;  // any JSON reader keeps it exactly

// True if a sublayer has a placement with the property.
template <class Property>
bool any_placement(const RunConfig& c, const Property& has) {
  return std::ranges::any_of(named_placements(c.model),
                             [&](PlacementKind kind) { return std::invoke(has, placement_row(kind)); });
}

// --- when a key has an effect ---

bool has_placement_norms(const RunConfig& c) { return any_placement(c, &Placement::has_norms); }
const NormRow& norm_of(const RunConfig& c) { return norm_row(c.model.norm); }
bool has_norm(const RunConfig& c) { return c.model.norm != NormKind::none; }
bool has_bias(const RunConfig& c) { return norm_of(c).has_bias && c.model.norm_affine; }
bool has_statistics(const RunConfig& c) { return norm_of(c).has_statistics(); }
bool has_epsilon(const RunConfig& c) { return has_statistics(c) || c.model.qk_norm || c.model.qkv_norm; }
bool has_groups(const RunConfig& c) { return norm_of(c).over == NormOver::groups; }
bool has_token_statistics(const RunConfig& c) {
  return norm_of(c).over == NormOver::features || has_groups(c);
}
bool is_mix(const RunConfig& c) { return named_placements(c.model).contains(PlacementKind::mix); }
bool has_free_scale(const RunConfig& c) { return any_placement(c, std::not_fn(&Placement::learned_scale)); }
bool has_free_qkv_norm(const RunConfig& c) { return !any_placement(c, &Placement::qkv_norm); }
bool has_free_inner_norm(const RunConfig& c) {
  return has_norm(c) && !any_placement(c, &Placement::inner_norm);
}
bool has_free_embed_norm(const RunConfig& c) {
  return has_norm(c) && !placement_row(c.model.norm_placement[0].attn).embed_norm;
}
bool has_alpha(const RunConfig& c) { return norm_of(c).has_alpha; }
bool is_gpt2(const RunConfig& c) { return c.model.init.scheme == InitScheme::gpt2; }
// A tied head's embeddings default to std under every scheme.
bool has_std(const RunConfig& c) { return is_gpt2(c) || c.model.tie_embeddings; }
bool has_adamw(const RunConfig& c) { return c.train.optimizer != OptimizerKind::sgd; }
bool has_momentum(const RunConfig& c) { return c.train.optimizer != OptimizerKind::adamw; }
bool has_schedule(const RunConfig& c) { return c.train.steps == 0 || c.train.warmup_steps < c.train.steps; }
bool has_cooldown(const RunConfig& c) { return has_schedule(c) && c.train.schedule == ScheduleKind::wsd; }
bool rate_falls(const RunConfig& c) { return has_schedule(c) && c.train.schedule != ScheduleKind::constant; }
bool splits_text(const RunConfig& c) { return c.data.val_path.empty(); }
bool evaluates_often(const RunConfig& c) { return c.eval.every > 0; }

// --- defaults that depend on other keys ---

void default_d_ff(RunConfig& c) { c.model.d_ff = 4 * c.model.d_model; }
void default_ffn_bias(RunConfig& c) { c.model.ffn_bias = c.model.bias; }
void default_momentum(RunConfig& c) {
  c.train.momentum = c.train.optimizer == OptimizerKind::muon ? 0.95 : 0.0;
}
// Rounded to 15 digits, so that a tenth of 0.003 is 0.0003 and not 0.00030000000000000003.
void default_min_lr(RunConfig& c) {
  c.train.min_lr = std::strtod(text(std::setprecision(15), c.train.lr / 10).c_str(), nullptr);
}
// The row of the last sublayer decides.
void default_final_norm(RunConfig& c) {
  c.model.final_norm = placement_row(c.model.norm_placement.back().ffn).final_norm;
}
void default_embed_std(RunConfig& c) { c.model.init.embed_std = has_std(c) ? c.model.init.std : 1.0; }
// Some placements limit the growth that this scaling is for in their own way.
void default_residual_scaling(RunConfig& c) {
  c.model.init.residual_scaling = !any_placement(c, std::not_fn(&Placement::residual_scaling));
}

// --- the table ---

// A function from a RunConfig, const or not, to a reference to the member that the path leads to.
auto at(auto... members) {
  return [=](auto& config) -> auto& { return (config.*....*members); };
}
auto model(auto member) { return at(&RunConfig::model, member); }
auto init(auto member) { return at(&RunConfig::model, &ModelConfig::init, member); }
auto train(auto member) { return at(&RunConfig::train, member); }

using M = ModelConfig;
using I = InitConfig;
using T = TrainConfig;

const std::vector<Field> table = {
    row("name", at(&RunConfig::name), run_name(), "the run's name; its folder is runs/<name>",
        {.default_to = {"the file's stem"}, .role = KeyRole::bookkeeping}),
    row("model.n_layer", model(&M::n_layer), integer(1, 1024), "blocks, L",
        {.label = "L {}",
         .other_names = {"n_layers", "nlayers", "num_layers", "num_hidden_layers", "depth"}}),
    row("model.n_head", model(&M::n_head), integer(1, max_width), "attention heads, H; divides d_model",
        {.other_names = {"n_heads", "nhead", "num_heads", "num_attention_heads"}}),
    row("model.d_model", model(&M::d_model), integer(1, max_width), "width of the residual stream, C",
        {.label = "C {}", .other_names = {"n_embd", "hidden_size", "embed_dim", "emsize", "width", "dim"}}),
    row("model.d_ff", model(&M::d_ff), integer(1, max_width), "width of the FFN, F",
        {.default_to = {"4*d_model", default_d_ff},
         .other_names = {"intermediate_size", "ffn_dim", "dim_feedforward", "n_inner", "nhid"}}),
    row("model.context", model(&M::context), integer(1, max_width), "characters of context, T",
        {.label = "T {}",
         .other_names = {"block_size", "context_length", "seq_len", "max_seq_length",
                         "max_position_embeddings", "n_positions", "bptt"}}),
    row("model.norm_placement", model(&M::norm_placement), placements(),
        "where the norms sit around attention and FFN", {.label = "{}", .other_names = {"placement"}}),
    row("model.mix_post_fraction", model(&M::mix_post_fraction), number(0, 1),
        "mix: the share of blocks, from the first, that are post",
        {.used_if = {is_mix, "only placement mix has it"}}),
    row("model.norm", model(&M::norm), one_of<NormKind>(),
        "the normalisation; none where the placement has no norms",
        {.used_if = {has_placement_norms, "the placement has no norms", "none"}, .label = "{}"}),
    row("model.norm_eps", model(&M::norm_eps), number(0, 1), "epsilon of the norm",
        {.used_if = {has_epsilon, "no norm here divides"},
         .other_names = {"layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"}}),
    row("model.norm_eps_outside", model(&M::norm_eps_outside), boolean(),
        "divide by sqrt(var) + eps, not sqrt(var + eps)",
        {.used_if = {has_statistics, "no norm here divides by a deviation"}}),
    row("model.norm_affine", model(&M::norm_affine), boolean(),
        "norms have a gain and a bias; dyt and derf keep alpha anyway",
        {.used_if = {has_norm, "there is no norm"}}),
    row("model.norm_bias", model(&M::norm_bias), boolean(), "norms have a bias; rmsnorm never has one",
        {.used_if = {has_bias, "this norm has no bias", false}}),
    row("model.norm_groups", model(&M::norm_groups), integer(1, max_width), "groupnorm: groups of features",
        {.used_if = {has_groups, "only groupnorm has groups"}}),
    row("model.final_norm", model(&M::final_norm), boolean_or_auto(), "a norm before the head",
        {.default_to = {"the placement's", default_final_norm},
         .takes_auto = true,
         .used_if = {has_norm, "there is no norm", false}}),
    row("model.embed_norm", model(&M::embed_norm), boolean(), "a norm on the embeddings, before block 1",
        {.used_if = {has_free_embed_norm, "there is no norm, or the placement has it"}}),
    row("model.norm_alpha", model(&M::norm_alpha), number(0, 100), "dyt, derf: alpha at the start",
        {.used_if = {has_alpha, "this norm has no alpha"}}),
    row("model.norm_detach", model(&M::norm_detach), boolean(),
        "the gradient takes a norm's mean and deviation for constants",
        {.used_if = {has_token_statistics, "no norm here runs over a token's features"}}),
    row("model.qk_norm", model(&M::qk_norm), boolean(), "RMSNorm of each head's queries and keys",
        {.used_if = {[](const RunConfig& c) { return !c.model.qkv_norm; }, "qkv_norm has it too"}}),
    row("model.qkv_norm", model(&M::qkv_norm), boolean(), "RMSNorm of each head's queries, keys and values",
        {.used_if = {has_free_qkv_norm, "the placement has it", true}}),
    row("model.inner_norm", model(&M::inner_norm), boolean(), "a norm before attn.out and before ffn.out",
        {.used_if = {has_free_inner_norm, "there is no norm, or the placement has it"}}),
    row("model.residual", model(&M::residual), boolean(), "false drops the x of x + F(x)"),
    row("model.branch_scale", model(&M::branch_scale), depth_factor(),
        "factor on each sublayer's output (its initial value if learned)",
        {.used_if = {has_free_scale, "the placement has its own"},
         .other_names = {"layer_scale", "skip_init"}}),
    row("model.branch_scale_learned", model(&M::branch_scale_learned), one_of<LearnedScale>(),
        "branch_scale as a parameter: one per sublayer (SkipInit), or one per feature (LayerScale)",
        {.used_if = {has_free_scale, "the placement has its own"}}),
    row("model.activation", model(&M::activation), one_of<Activation>(),
        "activation of the FFN; gelu is the erf form",
        {.label = "{}", .other_names = {"hidden_act", "activation_function", "act"}}),
    row("model.bias", model(&M::bias), boolean(), "biases in the blocks' linear layers; the head has none"),
    row("model.ffn_bias", model(&M::ffn_bias), boolean(), "biases in the FFN",
        {.default_to = {"bias", default_ffn_bias}}),
    row("model.position", model(&M::position), one_of<Position>(), "position encoding"),
    row("model.tie_embeddings", model(&M::tie_embeddings), boolean(),
        "the head's matrix is the token embedding", {.other_names = {"tie_word_embeddings", "tied"}}),
    row("model.dropout", model(&M::dropout), number(0, 1, High::open),
        "probability that an element is dropped in training",
        {.other_names = {"resid_pdrop", "hidden_dropout_prob"}}),
    row("model.init.scheme", init(&I::scheme), one_of<InitScheme>(), "distribution of the weights",
        {.label = "{}"}),
    row("model.init.std", init(&I::std), number(0, 100), "gpt2: standard deviation of every matrix",
        {.used_if = {has_std, "only scheme gpt2 has it"}}),
    row("model.init.embed_std", init(&I::embed_std), number(0, 100),
        "standard deviation of token and position embeddings",
        {.default_to = {"std for gpt2 or a tied head, else 1", default_embed_std}}),
    row("model.init.residual_scaling", init(&I::residual_scaling), boolean(),
        "gpt2: attn.out and ffn.out get std/sqrt(2L)",
        {.default_to = {"true for gpt2, but false for placements that bound the growth themselves",
                        default_residual_scaling},
         .used_if = {is_gpt2, "only scheme gpt2 has it", false}}),
    row("model.init.zero_branches", init(&I::zero_branches), boolean(), "attn.out and ffn.out start at 0"),
    row("data.path", at(&RunConfig::data, &DataConfig::path), paths(),
        "the corpus, UTF-8; a relative path counts from the config, then from the working directory",
        {.required = true,
         .role = KeyRole::text,
         .label = "{}",
         .other_names = {"data", "dataset", "data_path", "train_file"}}),
    row("data.val_fraction", at(&RunConfig::data, &DataConfig::val_fraction), number(0, 0.9),
        "the tail of the corpus kept for validation",
        {.used_if = {splits_text, "val_path is the validation text"}}),
    row("data.val_path", at(&RunConfig::data, &DataConfig::val_path), optional_path(),
        "a validation text in place of the corpus's tail", {.role = KeyRole::text}),
    row("train.steps", train(&T::steps), integer(1, max_steps), "updates",
        {.required = true,
         .role = KeyRole::free_on_resume,
         .label = "{} steps",
         .other_names = {"max_iters", "max_steps", "num_steps", "iterations", "epochs", "max_epochs",
                         "num_epochs", "num_train_epochs"}}),
    row("train.batch_size", train(&T::batch_size), integer(1, max_width), "sequences in a micro-batch, B",
        {.required = true,
         .label = "batch {}",
         .other_names = {"train_batch_size", "per_device_train_batch_size"}}),
    row("train.grad_accum", train(&T::grad_accum), integer(1, 1024), "micro-batches in a step",
        {.other_names = {"gradient_accumulation_steps", "accumulate_grad_batches"}}),
    row("train.seed", train(&T::seed), integer(0, max_seed), "seed of weights, batches and dropout"),
    row("train.precision", train(&T::precision), one_of<Precision>(), "operand precision of GEMMs",
        {.label = "{}", .other_names = {"dtype", "fp16", "amp"}}),
    row("train.gemm", train(&T::gemm), one_of<GemmProvider>(), "GEMM implementation"),
    row("train.threads", train(&T::threads), integer(0, 1024),
        "0: OpenMP's number of threads, at most the container's quota", {.role = KeyRole::bookkeeping}),
    row("train.on_nonfinite", train(&T::on_nonfinite), one_of<OnNonfinite>(),
        "a loss or gradient that is not finite: stop, or skip the update", {.role = KeyRole::free_on_resume}),
    row("train.optimizer", train(&T::optimizer), one_of<OptimizerKind>(),
        "with decoupled weight decay; muon: of the blocks' matrices, and adamw of all else",
        {.label = "{}", .other_names = {"optim"}}),
    row("train.lr", train(&T::lr), number(0, 100), "learning rate after the warm-up",
        {.other_names = {"learning_rate"}}),
    row("train.min_lr", train(&T::min_lr), number(0, 100), "final learning rate of cosine, linear and wsd",
        {.default_to = {"lr/10", default_min_lr},
         .follows = "train.lr",
         .used_if = {rate_falls, "the rate stays or only rises"}}),
    row("train.schedule", train(&T::schedule), one_of<ScheduleKind>(),
        "learning-rate schedule after the warm-up",
        {.used_if = {has_schedule, "the warm-up takes all steps"},
         .other_names = {"lr_scheduler", "lr_scheduler_type", "decay_lr"}}),
    row("train.warmup_steps", train(&T::warmup_steps), integer(0, max_steps),
        "updates in which the rate rises linearly to lr",
        {.label = "warm-up {}", .other_names = {"warmup_iters", "warmup", "warmup_ratio"}}),
    row("train.cooldown", train(&T::cooldown), number(0, 1),
        "wsd: share of the steps after the warm-up in which the rate falls linearly to min_lr",
        {.used_if = {has_cooldown, "only wsd has it"}}),
    row("train.branch_warmup_steps", train(&T::branch_warmup_steps), integer(0, max_steps),
        "T: at step s the branches of block l are multiplied by min(s/(T*l), 1); 0: off",
        {.label = "branch warm-up {}"}),
    row("train.beta1", train(&T::beta1), number(0, 1, High::open), "adamw, muon: decay of the first moment",
        {.used_if = {has_adamw, "sgd has none"}, .other_names = {"adam_beta1"}}),
    row("train.beta2", train(&T::beta2), number(0, 1, High::open), "adamw, muon: decay of the second moment",
        {.used_if = {has_adamw, "sgd has none"}, .other_names = {"adam_beta2"}}),
    row("train.adam_eps", train(&T::adam_eps), number(0, 1),
        "adamw, muon: added to the root of the second moment",
        {.used_if = {has_adamw, "sgd has none"}, .other_names = {"adam_epsilon"}}),
    row("train.momentum", train(&T::momentum), number(0, 1, High::open), "sgd, muon: v = momentum*v + g",
        {.default_to = {"0, with muon 0.95", default_momentum}, .used_if = {has_momentum, "adamw has none"}}),
    row("train.weight_decay", train(&T::weight_decay), number(0, 100),
        "decay of tensors of rank 2, embeddings included"),
    row("train.grad_clip", train(&T::grad_clip), number(0, 1e9), "largest norm of the whole gradient; 0: off",
        {.other_names = {"gradient_clip_val", "max_grad_norm", "clip"}}),
    row("eval.every", at(&RunConfig::eval, &EvalConfig::every), integer(0, max_steps),
        "steps between evaluations; 0: only at the end",
        {.role = KeyRole::free_on_resume,
         .label = "evaluated every {}",
         .other_names = {"eval_interval", "eval_steps", "val_check_interval"}}),
    row("eval.batches", at(&RunConfig::eval, &EvalConfig::batches), integer(0, max_steps),
        "batches of an evaluation; 0: the whole split",
        {.role = KeyRole::free_on_resume,
         .used_if = {evaluates_often, "the one evaluation, at the end, takes the whole split"},
         .label = "evaluated on {} batches",
         .other_names = {"eval_iters", "limit_val_batches"}}),
    row("log.every", at(&RunConfig::log, &LogConfig::every), integer(1, max_steps),
        "steps between rows of metrics.csv",
        {.role = KeyRole::bookkeeping,
         .other_names = {"log_interval", "logging_steps", "log_every_n_steps"}}),
    row("log.layers_every", at(&RunConfig::log, &LogConfig::layers_every), integer(0, max_steps),
        "steps between rows of layers.csv, params.csv and heads.csv; 0: off", {.role = KeyRole::bookkeeping}),
    row("log.layers_first", at(&RunConfig::log, &LogConfig::layers_first), integer(0, max_steps),
        "first steps that have a row each in layers.csv, params.csv and heads.csv",
        {.role = KeyRole::bookkeeping,
         .used_if = {[](const RunConfig& c) { return c.log.layers_every > 0; },
                     "log.layers_every: 0 logs no layers"}}),
    row("checkpoint.every", at(&RunConfig::checkpoint, &CheckpointConfig::every), integer(0, max_steps),
        "steps between checkpoints; 0: only at the end and when interrupted",
        {.role = KeyRole::bookkeeping, .other_names = {"save_steps", "save_interval"}}),
};

}  // namespace

const std::vector<Field>& fields() { return table; }

std::set<PlacementKind> named_placements(const ModelConfig& config) {
  std::set<PlacementKind> kinds;
  for (const auto& [attn, ffn] : config.norm_placement) kinds.insert({attn, ffn});
  return kinds;
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
