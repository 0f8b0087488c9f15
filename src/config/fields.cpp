#include "config/fields.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>

#include "config/field_types.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"

namespace normscope {
namespace {

// --- defaults that depend on other keys ---

void default_ffn_bias(RunConfig& c) { c.model.ffn_bias = c.model.bias; }
// Rounded to 15 digits, so that a tenth of 0.003 is 0.0003 and not 0.00030000000000000003.
void default_min_lr(RunConfig& c) {
  c.train.min_lr = std::strtod(text(std::setprecision(15), c.train.lr / 10).c_str(), nullptr);
}
// The row of the last sublayer decides.
void default_final_norm(RunConfig& c) {
  c.model.final_norm = placement_row(c.model.norm_placement.back().ffn).final_norm;
}

void default_embed_std(RunConfig& c) {
  const bool as_matrices = c.model.init.scheme == InitScheme::gpt2 || c.model.tie_embeddings;
  c.model.init.embed_std = as_matrices ? c.model.init.std : 1.0;
}

// Some placements limit the growth that this scaling is for in their own way.
void default_residual_scaling(RunConfig& c) {
  const auto scaled = [](const BlockPlacement& block) {
    return placement_row(block.attn).residual_scaling && placement_row(block.ffn).residual_scaling;
  };
  c.model.init.residual_scaling =
      c.model.init.scheme == InitScheme::gpt2 && std::ranges::all_of(c.model.norm_placement, scaled);
}

// --- the values of other keys that give a key an effect ---

// The names of the rows of a table that have a property.
template <class Rows, class Property>
std::vector<std::string> names_where(const Rows& table, const Property& has) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (std::invoke(has, row)) names.push_back(row.name);
  }
  return names;
}

bool holds(const nlohmann::ordered_json& value, const nlohmann::ordered_json& wanted,
           const RunConfig& config) {
  if (wanted.is_array()) {
    const auto is_wanted = [&](const auto& one) {
      return std::find(wanted.begin(), wanted.end(), one) != wanted.end();
    };
    if (!value.is_structured()) return is_wanted(value);
    return std::any_of(value.begin(), value.end(),
                       [&](const auto& one) { return holds(one, wanted, config); });
  }
  const std::string how = wanted.begin().key();
  const nlohmann::ordered_json& what = wanted.front();
  if (how == "not") return !holds(value, what, config);
  const nlohmann::ordered_json other = find_field(what.get_ref<const std::string&>())->get(config);
  return other == 0 || value < other;
}

// --- the table ---

std::vector<Field> make_table() {
  using M = ModelConfig;
  using I = InitConfig;
  using T = TrainConfig;
  constexpr Index max_steps = 10'000'000;
  constexpr Index max_width = 65536;
  constexpr Index max_seed = (Index{1} << 53) - 1;  // any JSON reader keeps it exactly
  const auto model = [](auto... members) { return at(&RunConfig::model, members...); };
  const auto init = [](auto member) { return at(&RunConfig::model, &M::init, member); };
  const auto train = [](auto member) { return at(&RunConfig::train, member); };

  std::vector<Field> t;
  const auto add = [&](std::string key, auto value, const auto& type, std::string doc,
                       FieldTraits traits = {}) {
    t.push_back(make_field(std::move(key), value, type, std::move(doc), std::move(traits)));
  };
  const auto is = [](auto... values) { return nlohmann::ordered_json::array({values...}); };
  const auto is_not = [&](auto... values) { return nlohmann::ordered_json{{"not", is(values...)}}; };
  const Conditions has_norms = {{"model.norm", is_not("none")}};
  const auto norms = [](auto has) { return names_where(norm_table(), has); };
  const auto placements = [](auto has) { return names_where(placement_table(), has); };
  const auto of_groups = norms([](const NormRow& row) { return row.over == NormOver::groups; });
  const auto not_scaling = placements([](const Placement& row) { return !row.residual_scaling; });
  const Conditions unscaled = {{"model.norm_placement", placements(std::not_fn(&Placement::learned_scale))}};
  const nlohmann::ordered_json below_steps = {{"below", "train.steps"}};
  const Conditions gpt2 = {{"model.init.scheme", is("gpt2")}};
  const Conditions adamw = {{"train.optimizer", is("adamw")}};

  add("name", at(&RunConfig::name), run_name(), "the run's name; its folder is runs/<name>",
      {.default_words = "the file's stem", .is_bookkeeping = true});
  add("model.n_layer", model(&M::n_layer), integer(1, 1024), "blocks, L",
      {.label = "L {}", .other_names = {"n_layers", "nlayers", "num_layers", "num_hidden_layers", "depth"}});
  add("model.n_head", model(&M::n_head), integer(1, max_width), "attention heads, H; divides d_model",
      {.other_names = {"n_heads", "nhead", "num_heads", "num_attention_heads"}});
  add("model.d_model", model(&M::d_model), integer(1, max_width), "width of the residual stream, C",
      {.label = "C {}", .other_names = {"n_embd", "hidden_size", "embed_dim", "emsize", "width", "dim"}});
  add("model.d_ff", model(&M::d_ff), integer(1, max_width), "width of the FFN, F",
      {.default_words = "4*d_model",
       .apply_default = [](RunConfig& c) { c.model.d_ff = 4 * c.model.d_model; },
       .other_names = {"intermediate_size", "ffn_dim", "dim_feedforward", "n_inner", "nhid"}});
  add("model.context", model(&M::context), integer(1, max_width), "characters seen at once, T",
      {.label = "T {}",
       .other_names = {"block_size", "context_length", "seq_len", "max_seq_length", "max_position_embeddings",
                       "n_positions", "bptt"}});
  t.push_back(placement_field("model.norm_placement", "where the norms sit around attention and FFN",
                              {.label = "{}", .other_names = {"placement"}}));
  add("model.mix_post_fraction", model(&M::mix_post_fraction), number(0, 1),
      "mix: the share of blocks, from the first, that are post",
      {.uses = {{{"model.norm_placement", is("mix")}}}, .unused_words = "only placement mix has it"});
  add("model.norm", model(&M::norm), one_of<NormKind>(),
      "the normalisation; none where the placement has no norms",
      {.uses = {{{"model.norm_placement", placements(&Placement::has_norms)}}},
       .unused_words = "the placement has no norms",
       .else_value = "none",
       .label = "{}"});
  add("model.norm_eps", model(&M::norm_eps), number(0, 1), "epsilon of the norm",
      {.uses = {{{"model.norm", norms(&NormRow::has_statistics)}},
                {{"model.qk_norm", is(true)}},
                {{"model.qkv_norm", is(true)}}},
       .unused_words = "no norm here divides",
       .other_names = {"layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"}});
  add("model.norm_eps_outside", model(&M::norm_eps_outside), boolean(),
      "divide by sqrt(var) + eps, not sqrt(var + eps)",
      {.uses = {{{"model.norm", norms(&NormRow::has_statistics)}}},
       .unused_words = "no norm here divides by a deviation"});
  add("model.norm_affine", model(&M::norm_affine), boolean(),
      "norms have a gain and a bias; dyt and derf keep alpha anyway",
      {.uses = {has_norms}, .unused_words = "there is no norm"});
  add("model.norm_bias", model(&M::norm_bias), boolean(), "norms have a bias; rmsnorm never has one",
      {.uses = {{{"model.norm", norms(&NormRow::has_bias)}, {"model.norm_affine", is(true)}}},
       .unused_words = "this norm has no bias",
       .else_value = false});
  add("model.norm_groups", model(&M::norm_groups), integer(1, max_width),
      "groups of features of " + join(of_groups),
      {.uses = {{{"model.norm", of_groups}}}, .unused_words = "only " + join(of_groups) + " has groups"});
  add("model.final_norm", model(&M::final_norm), boolean_or_auto(), "a norm before the head",
      {.default_words = "the placement's",
       .apply_default = default_final_norm,
       .takes_auto = true,
       .uses = {has_norms},
       .unused_words = "there is no norm",
       .else_value = false});
  add("model.residual", model(&M::residual), boolean(), "false drops the x of x + F(x)");
  add("model.branch_scale", model(&M::branch_scale), depth_factor(),
      "what attention and the FFN return is multiplied by it; of a learned one, its start",
      {.uses = {unscaled},
       .unused_words = "the placement has its own",
       .other_names = {"layer_scale", "skip_init"}});
  add("model.branch_scale_learned", model(&M::branch_scale_learned), one_of<LearnedScale>(),
      "branch_scale is a parameter: one a sublayer (SkipInit), or one a feature (LayerScale)",
      {.uses = {unscaled}, .unused_words = "the placement has its own"});
  add("model.activation", model(&M::activation), one_of<Activation>(), "of the FFN; gelu is the erf form",
      {.label = "{}", .other_names = {"hidden_act", "activation_function", "act"}});
  add("model.bias", model(&M::bias), boolean(), "biases in the blocks' linear layers; the head has none");
  add("model.ffn_bias", model(&M::ffn_bias), boolean(), "biases in the FFN",
      {.default_words = "bias", .apply_default = default_ffn_bias});
  add("model.qk_norm", model(&M::qk_norm), boolean(), "RMSNorm of each head's queries and keys",
      {.uses = {{{"model.qkv_norm", is(false)}}}, .unused_words = "qkv_norm has it too"});
  add("model.qkv_norm", model(&M::qkv_norm), boolean(), "RMSNorm of each head's queries, keys and values",
      {.uses = {{{"model.norm_placement", {{"not", placements(&Placement::qkv_norm)}}}}},
       .unused_words = "the placement has it",
       .else_value = true});
  add("model.inner_norm", model(&M::inner_norm), boolean(), "a norm before attn.out and before ffn.out",
      {.uses = {{{"model.norm", is_not("none")},
                 {"model.norm_placement", {{"not", placements(&Placement::inner_norm)}}}}},
       .unused_words = "there is no norm, or the placement has it"});
  add("model.position", model(&M::position), one_of<Position>(), "how positions are told");
  add("model.tie_embeddings", model(&M::tie_embeddings), boolean(),
      "the head's matrix is the token embedding", {.other_names = {"tie_word_embeddings", "tied"}});
  add("model.dropout", model(&M::dropout), number(0, 1, High::open),
      "probability that an element is dropped in training",
      {.other_names = {"resid_pdrop", "hidden_dropout_prob"}});
  add("model.init.scheme", init(&I::scheme), one_of<InitScheme>(), "how weights are drawn", {.label = "{}"});
  add("model.init.std", init(&I::std), number(0, 100), "gpt2: standard deviation of every matrix",
      {.uses = {gpt2, {{"model.tie_embeddings", is(true)}}}, .unused_words = "only scheme gpt2 has it"});
  add("model.init.embed_std", init(&I::embed_std), number(0, 100),
      "standard deviation of token and position embeddings",
      {.default_words = "std for gpt2 or a tied head, else 1", .apply_default = default_embed_std});
  add("model.init.residual_scaling", init(&I::residual_scaling), boolean(),
      "gpt2: attn.out and ffn.out get std/sqrt(2L)",
      {.default_words = "true for gpt2, but false for " + join(not_scaling, " and "),
       .apply_default = default_residual_scaling,
       .uses = {gpt2},
       .unused_words = "only scheme gpt2 has it"});
  add("data.path", at(&RunConfig::data, &DataConfig::path), paths(),
      "the corpus, UTF-8; a relative path counts from the config, then from the working directory",
      {.required = true,
       .names_text = true,
       .label = "{}",
       .other_names = {"data", "dataset", "data_path", "train_file"}});
  add("data.val_fraction", at(&RunConfig::data, &DataConfig::val_fraction), number(0, 0.9),
      "the tail of the corpus kept for validation",
      {.uses = {{{"data.val_path", is("")}}}, .unused_words = "val_path is the validation text"});
  add("data.val_path", at(&RunConfig::data, &DataConfig::val_path), optional_path(),
      "a validation text in place of the corpus's tail", {.names_text = true});
  add("train.steps", train(&T::steps), integer(1, max_steps), "updates",
      {.required = true,
       .may_change_on_resume = true,
       .label = "{} steps",
       .other_names = {"max_iters", "max_steps", "num_steps", "iterations"},
       .other_quantities = {"epochs", "max_epochs", "num_epochs", "num_train_epochs"}});
  add("train.batch_size", train(&T::batch_size), integer(1, max_width), "sequences in a micro-batch, B",
      {.required = true,
       .label = "batch {}",
       .other_names = {"train_batch_size", "per_device_train_batch_size"}});
  add("train.grad_accum", train(&T::grad_accum), integer(1, 1024), "micro-batches in a step",
      {.other_names = {"gradient_accumulation_steps", "accumulate_grad_batches"}});
  add("train.seed", train(&T::seed), integer(0, max_seed), "of weights, batches and dropout");
  add("train.optimizer", train(&T::optimizer), one_of<OptimizerKind>(), "with decoupled weight decay",
      {.label = "{}", .other_names = {"optim"}});
  add("train.lr", train(&T::lr), number(0, 100), "learning rate after the warm-up",
      {.other_names = {"learning_rate"}});
  add("train.min_lr", train(&T::min_lr), number(0, 100), "where cosine and linear end",
      {.default_words = "lr/10",
       .apply_default = default_min_lr,
       .uses = {{{"train.schedule", is_not("constant")}, {"train.warmup_steps", below_steps}}},
       .unused_words = "the rate stays or only rises"});
  add("train.schedule", train(&T::schedule), one_of<ScheduleKind>(), "of the learning rate after the warm-up",
      {.uses = {{{"train.warmup_steps", below_steps}}},
       .unused_words = "the warm-up takes all steps",
       .other_names = {"lr_scheduler", "lr_scheduler_type", "decay_lr"}});
  add("train.warmup_steps", train(&T::warmup_steps), integer(0, max_steps),
      "updates in which the rate rises linearly to lr",
      {.label = "warm-up {}", .other_names = {"warmup_iters", "warmup", "warmup_ratio"}});
  add("train.beta1", train(&T::beta1), number(0, 1, High::open), "adamw: decay of the first moment",
      {.uses = {adamw}, .unused_words = "only adamw has it", .other_names = {"adam_beta1"}});
  add("train.beta2", train(&T::beta2), number(0, 1, High::open), "adamw: decay of the second moment",
      {.uses = {adamw}, .unused_words = "only adamw has it", .other_names = {"adam_beta2"}});
  add("train.adam_eps", train(&T::adam_eps), number(0, 1), "adamw: added to the root of the second moment",
      {.uses = {adamw}, .unused_words = "only adamw has it", .other_names = {"adam_epsilon"}});
  add("train.momentum", train(&T::momentum), number(0, 1, High::open), "sgd: v = momentum*v + g",
      {.uses = {{{"train.optimizer", is("sgd")}}}, .unused_words = "only sgd has it"});
  add("train.weight_decay", train(&T::weight_decay), number(0, 100),
      "of tensors of rank 2, embeddings included");
  add("train.grad_clip", train(&T::grad_clip), number(0), "largest norm of the whole gradient; 0: off",
      {.other_names = {"gradient_clip_val", "max_grad_norm", "clip"}});
  add("train.precision", train(&T::precision), one_of<Precision>(), "operand precision of GEMMs",
      {.label = "{}", .other_names = {"dtype", "fp16", "amp"}});
  add("train.gemm", train(&T::gemm), one_of<GemmProvider>(), "GEMM implementation");
  add("train.threads", train(&T::threads), integer(0, 1024),
      "0: what is fastest, up to OMP_NUM_THREADS, else the cores allowed", {.is_bookkeeping = true});
  add("train.on_nonfinite", train(&T::on_nonfinite), one_of<OnNonfinite>(),
      "a loss or gradient that is not finite: stop, or skip the update", {.may_change_on_resume = true});
  add("eval.every", at(&RunConfig::eval, &EvalConfig::every), integer(0, max_steps),
      "steps between evaluations; 0: only at the end",
      {.may_change_on_resume = true,
       .label = "evaluated every {}",
       .other_names = {"eval_interval", "eval_steps", "val_check_interval"}});
  add("eval.batches", at(&RunConfig::eval, &EvalConfig::batches), integer(0, max_steps),
      "batches of an evaluation; 0: the whole split",
      {.may_change_on_resume = true,
       .uses = {{{"eval.every", is_not(0)}}},
       .unused_words = "the one evaluation, at the end, takes the whole split",
       .label = "evaluated on {} batches",
       .other_names = {"eval_iters", "limit_val_batches"}});
  add("log.every", at(&RunConfig::log, &LogConfig::every), integer(1, max_steps),
      "steps between rows of metrics.csv",
      {.is_bookkeeping = true, .other_names = {"log_interval", "logging_steps", "log_every_n_steps"}});
  add("log.layers_every", at(&RunConfig::log, &LogConfig::layers_every), integer(0, max_steps),
      "steps between rows of layers.csv, params.csv and heads.csv; 0: off", {.is_bookkeeping = true});
  add("checkpoint.every", at(&RunConfig::checkpoint, &CheckpointConfig::every), integer(0, max_steps),
      "steps between checkpoints; 0: only at the end and when interrupted",
      {.is_bookkeeping = true, .other_names = {"save_steps", "save_interval"}});
  for (Field& field : t) field.may_change_on_resume |= field.is_bookkeeping;
  return t;
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = make_table();
  return table;
}

bool Field::used_in(const RunConfig& config) const {
  const auto all_hold = [&](const Conditions& conditions) {
    return std::all_of(conditions.begin(), conditions.end(), [&](const auto& condition) {
      return holds(find_field(condition.first)->get(config), condition.second, config);
    });
  };
  return uses.empty() || std::any_of(uses.begin(), uses.end(), all_hold);
}

std::vector<const Field*> reset_unused(RunConfig& config) {
  std::vector<const Field*> changed;
  for (const Field& field : fields()) {
    if (field.else_value.is_null() || field.used_in(config) || field.get(config) == field.else_value)
      continue;
    field.set(config, field.else_value);
    changed.push_back(&field);
  }
  return changed;
}

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(fields(), key, &Field::key);
  return found == fields().end() ? nullptr : &*found;
}

std::string default_text(const Field& field) {
  if (field.required) return "required";
  if (!field.default_words.empty()) return field.default_words;
  const nlohmann::ordered_json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(value.get<double>());  // 0, where JSON writes 0.0
  return value.is_string() && value != "" ? value.get<std::string>() : json_line(value);
}

}  // namespace normscope
