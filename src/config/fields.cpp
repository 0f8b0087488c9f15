#include "config/fields.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "config/field_types.h"
#include "core/nearest.h"
#include "model/norms.h"
#include "model/placement.h"

namespace normscope {
namespace {

// --- defaults that depend on other keys ---

void default_d_ff(RunConfig& c) { c.model.d_ff = 4 * c.model.d_model; }
void default_ffn_bias(RunConfig& c) { c.model.ffn_bias = c.model.bias; }
// Rounded to 15 digits, so that a tenth of 0.003 is 0.0003 and not 0.00030000000000000003.
void default_min_lr(RunConfig& c) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.15g", c.train.lr / 10);
  c.train.min_lr = std::strtod(digits.data(), nullptr);
}

// The last block's row decides; a mix ends in pre whatever its fraction.
void default_final_norm(RunConfig& c) {
  const PlacementKind last = c.model.norm_placement.back();
  c.model.final_norm = last == PlacementKind::mix || placement_row(last).final_norm;
}

void default_embed_std(RunConfig& c) {
  const bool as_matrices = c.model.init.scheme == InitScheme::gpt2 || c.model.tie_embeddings;
  c.model.init.embed_std = as_matrices ? c.model.init.std : 1.0;
}

// pre_scaled and deepnorm bring their own answer to the growth that this scaling is for.
void default_residual_scaling(RunConfig& c) {
  const auto scales_itself = [](PlacementKind kind) {
    return kind == PlacementKind::pre_scaled || kind == PlacementKind::deepnorm;
  };
  const auto& written = c.model.norm_placement;
  const bool any = std::any_of(written.begin(), written.end(), scales_itself);
  c.model.init.residual_scaling = c.model.init.scheme == InitScheme::gpt2 && !any;
}

// --- which values make other keys matter ---

template <class Rows, class Holds>
nlohmann::ordered_json names_where(const Rows& rows, const Holds& holds) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    if (holds(row)) names.push_back(row.name);
  }
  return names;
}

bool holds(const nlohmann::ordered_json& value, const nlohmann::ordered_json& wanted,
           const RunConfig& config) {
  if (wanted.is_array()) {
    const auto is_wanted = [&](const auto& one) {
      return std::find(wanted.begin(), wanted.end(), one) != wanted.end();
    };
    return value.is_array() ? std::any_of(value.begin(), value.end(), is_wanted) : is_wanted(value);
  }
  const std::string how = wanted.begin().key();
  const nlohmann::ordered_json& what = wanted.front();
  if (how == "not") return !holds(value, what, config);
  const nlohmann::ordered_json other = find_field(what.get_ref<const std::string&>())->get(config);
  return how == "as" ? value == other : other == 0 || value < other;
}

// --- the table ---

std::vector<Field> make_table() {
  using R = RunConfig;
  using M = ModelConfig;
  using I = InitConfig;
  using T = TrainConfig;
  constexpr Range below_one = {0, 1, /*open_high=*/true};
  constexpr Index max_steps = 10'000'000;
  constexpr Index max_width = 65536;
  constexpr Index max_seed = (Index{1} << 53) - 1;  // any JSON reader keeps it exactly
  std::vector<Field> t;
  const auto add = [&](Field&& field) { t.push_back(std::move(field)); };
  const auto is = [](auto... values) { return nlohmann::ordered_json::array({values...}); };
  const auto is_not = [&](auto... values) { return nlohmann::ordered_json{{"not", is(values...)}}; };
  const Conditions has_norms = {{"model.norm", is_not("none")}};
  const auto norms_divide = names_where(
      norm_table(), [](const NormRow& row) { return row.kind != NormKind::none && !row.has_alpha; });
  const auto norms_have_bias = names_where(norm_table(), [](const NormRow& row) { return row.has_bias; });
  auto places_have_norms = names_where(
      placement_table(), [](const Placement& row) { return row.norm_in || row.norm_branch || row.norm_out; });
  places_have_norms.push_back("mix");
  const nlohmann::ordered_json below_steps = {{"below", "train.steps"}};

  add(run_name("name", "the run's name; its folder is runs/<name>")
          .by_default("the file's stem", nullptr)
          .bookkeeping()
          .changeable());

  add(integer("model.n_layer", 1, 1024, at(&R::model, &M::n_layer), "blocks, L").called("L {}"));
  add(integer("model.n_head", 1, max_width, at(&R::model, &M::n_head),
              "attention heads, H; divides d_model"));
  add(integer("model.d_model", 1, max_width, at(&R::model, &M::d_model), "width of the residual stream, C")
          .called("C {}"));
  add(integer("model.d_ff", 1, max_width, at(&R::model, &M::d_ff), "width of the FFN, F")
          .by_default("4*d_model", default_d_ff));
  add(integer("model.context", 1, max_width, at(&R::model, &M::context), "characters seen at once, T")
          .called("T {}"));
  add(placements("model.norm_placement", "where the norms sit around attention and FFN").called("{}"));
  add(number("model.mix_post_fraction", {0, 1}, at(&R::model, &M::mix_post_fraction),
             "mix: the share of blocks, from the first, that are post")
          .used_when({{"model.norm_placement", is("mix")}}, "only placement mix has it"));
  add(choice("model.norm", at(&R::model, &M::norm), "the normalisation; rezero and none placements have none")
          .called("{}")
          .used_when({{"model.norm_placement", places_have_norms}}, "the placement has no norms")
          .else_is("none"));
  add(number("model.norm_eps", {0, 1}, at(&R::model, &M::norm_eps), "epsilon of the norm")
          .used_when({{"model.norm", norms_divide}}, "no norm here divides")
          .or_when({{"model.qk_norm", is(true)}}));
  add(boolean("model.norm_eps_outside", at(&R::model, &M::norm_eps_outside),
              "divide by sqrt(var) + eps, not sqrt(var + eps)")
          .used_when({{"model.norm", norms_divide}}, "no norm here divides by a deviation"));
  add(boolean("model.norm_affine", at(&R::model, &M::norm_affine),
              "norms have a gain and a bias; dyt keeps alpha anyway")
          .used_when(has_norms, "there is no norm"));
  add(boolean("model.norm_bias", at(&R::model, &M::norm_bias), "norms have a bias; rmsnorm never has one")
          .used_when({{"model.norm", norms_have_bias}, {"model.norm_affine", is(true)}},
                     "this norm has no bias")
          .else_is(false));
  add(integer("model.norm_groups", 1, max_width, at(&R::model, &M::norm_groups),
              "groups of features of groupnorm")
          .used_when({{"model.norm", is("groupnorm")}}, "only groupnorm has groups"));
  add(boolean_or_auto("model.final_norm", at(&R::model, &M::final_norm), "a norm before the head")
          .by_default("the placement's", default_final_norm)
          .used_when(has_norms, "there is no norm")
          .else_is(false));
  add(boolean("model.residual", at(&R::model, &M::residual), "false drops the x of x + F(x)"));
  add(choice("model.activation", at(&R::model, &M::activation), "of the FFN; gelu is the erf form")
          .called("{}"));
  add(boolean("model.bias", at(&R::model, &M::bias),
              "biases in the blocks' linear layers; the head has none"));
  add(boolean("model.ffn_bias", at(&R::model, &M::ffn_bias), "biases in the FFN")
          .by_default("bias", default_ffn_bias));
  add(boolean("model.qk_norm", at(&R::model, &M::qk_norm), "RMSNorm of each head's queries and keys"));
  add(choice("model.position", at(&R::model, &M::position), "how positions are told"));
  add(boolean("model.tie_embeddings", at(&R::model, &M::tie_embeddings),
              "the head's matrix is the token embedding"));
  add(number("model.dropout", below_one, at(&R::model, &M::dropout),
             "probability that an element is dropped in training"));
  add(choice("model.init.scheme", at(&R::model, &M::init, &I::scheme), "how weights are drawn").called("{}"));
  add(number("model.init.std", {0, 100}, at(&R::model, &M::init, &I::std),
             "gpt2: standard deviation of every matrix")
          .used_when({{"model.init.scheme", is("gpt2")}}, "only scheme gpt2 has it")
          .or_when(
              {{"model.tie_embeddings", is(true)}, {"model.init.embed_std", {{"as", "model.init.std"}}}}));
  add(number("model.init.embed_std", {0, 100}, at(&R::model, &M::init, &I::embed_std),
             "standard deviation of token and position embeddings")
          .by_default("std for gpt2 or a tied head, else 1", default_embed_std));
  add(boolean("model.init.residual_scaling", at(&R::model, &M::init, &I::residual_scaling),
              "gpt2: attn.out and ffn.out get std/sqrt(2L)")
          .by_default("true for gpt2, but false for pre_scaled and deepnorm", default_residual_scaling)
          .used_when({{"model.init.scheme", is("gpt2")}}, "only scheme gpt2 has it"));

  add(paths("data.path",
            "the corpus, UTF-8; a relative path counts from the config, then from the working directory")
          .needed()
          .text_file()
          .called("{}"));
  add(number("data.val_fraction", {0, 0.9}, at(&R::data, &DataConfig::val_fraction),
             "the tail of the corpus kept for validation")
          .used_when({{"data.val_path", is("")}}, "val_path is the validation text"));
  add(optional_path("data.val_path", "a validation text in place of the corpus's tail").text_file());

  add(integer("train.steps", 1, max_steps, at(&R::train, &T::steps), "updates")
          .needed()
          .changeable()
          .called("{} steps"));
  add(integer("train.batch_size", 1, max_width, at(&R::train, &T::batch_size),
              "sequences in a micro-batch, B")
          .needed()
          .called("batch {}"));
  add(integer("train.grad_accum", 1, 1024, at(&R::train, &T::grad_accum), "micro-batches in a step"));
  add(integer("train.seed", 0, max_seed, at(&R::train, &T::seed), "of weights, batches and dropout"));
  add(choice("train.optimizer", at(&R::train, &T::optimizer), "with decoupled weight decay").called("{}"));
  add(number("train.lr", {0, 100}, at(&R::train, &T::lr), "learning rate after the warm-up"));
  add(number("train.min_lr", {0, 100}, at(&R::train, &T::min_lr), "where cosine and linear end")
          .by_default("lr/10", default_min_lr)
          .used_when({{"train.schedule", is_not("constant")}, {"train.warmup_steps", below_steps}},
                     "the rate stays or only rises"));
  add(choice("train.schedule", at(&R::train, &T::schedule), "of the learning rate after the warm-up")
          .used_when({{"train.warmup_steps", below_steps}}, "the warm-up takes all steps"));
  add(integer("train.warmup_steps", 0, max_steps, at(&R::train, &T::warmup_steps),
              "updates in which the rate rises linearly to lr")
          .called("warm-up {}"));
  add(number("train.beta1", below_one, at(&R::train, &T::beta1), "adamw: decay of the first moment")
          .used_when({{"train.optimizer", is("adamw")}}, "only adamw has it"));
  add(number("train.beta2", below_one, at(&R::train, &T::beta2), "adamw: decay of the second moment")
          .used_when({{"train.optimizer", is("adamw")}}, "only adamw has it"));
  add(number("train.adam_eps", {0, 1}, at(&R::train, &T::adam_eps),
             "adamw: added to the root of the second moment")
          .used_when({{"train.optimizer", is("adamw")}}, "only adamw has it"));
  add(number("train.momentum", below_one, at(&R::train, &T::momentum), "sgd: v = momentum*v + g")
          .used_when({{"train.optimizer", is("sgd")}}, "only sgd has it"));
  add(number("train.weight_decay", {0, 100}, at(&R::train, &T::weight_decay),
             "of tensors of rank 2, embeddings included"));
  add(number("train.grad_clip", {0, no_limit}, at(&R::train, &T::grad_clip),
             "largest norm of the whole gradient; 0: off"));
  add(choice("train.precision", at(&R::train, &T::precision), "of the matrix products").called("{}"));
  add(choice("train.gemm", at(&R::train, &T::gemm), "who multiplies matrices")
          .used_when({{"train.precision", is("fp32")}}, "bf16 has one product"));
  add(integer("train.threads", 0, 1024, at(&R::train, &T::threads),
              "0: OMP_NUM_THREADS, else the cores allowed")
          .bookkeeping()
          .changeable());
  add(choice("train.on_nonfinite", at(&R::train, &T::on_nonfinite),
             "a loss or gradient that is not finite: stop, or skip the update")
          .changeable());

  add(integer("eval.every", 0, max_steps, at(&R::eval, &EvalConfig::every),
              "steps between evaluations; 0: only at the end")
          .called("evaluated every {}")
          .changeable());
  add(integer("eval.batches", 0, max_steps, at(&R::eval, &EvalConfig::batches),
              "batches of an evaluation; 0: the whole split")
          .called("evaluated on {} batches")
          .changeable()
          .used_when({{"eval.every", is_not(0)}}, "the one evaluation, at the end, takes the whole split"));
  add(integer("log.every", 1, max_steps, at(&R::log, &LogConfig::every), "steps between rows of metrics.csv")
          .bookkeeping()
          .changeable());
  add(integer("log.layers_every", 0, max_steps, at(&R::log, &LogConfig::layers_every),
              "steps between rows of layers.csv and params.csv; 0: off")
          .bookkeeping()
          .changeable());
  add(integer("checkpoint.every", 0, max_steps, at(&R::checkpoint, &CheckpointConfig::every),
              "steps between checkpoints; 0: only at the end and when interrupted")
          .bookkeeping()
          .changeable());
  return t;
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// What nanoGPT, Hugging Face and Lightning call our keys.
struct OtherNames {
  const char* key;
  std::string_view words;  // each between spaces
};
constexpr OtherNames other_names[] = {
    {"model.n_layer", " n_layers num_layers num_hidden_layers depth "},
    {"model.n_head", " n_heads num_heads num_attention_heads "},
    {"model.d_model", " n_embd hidden_size embed_dim width dim "},
    {"model.d_ff", " intermediate_size ffn_dim "},
    {"model.context", " block_size context_length seq_len max_position_embeddings "},
    {"model.activation", " hidden_act act "},
    {"model.norm_placement", " placement "},
    {"train.lr", " learning_rate "},
    {"train.steps", " max_iters max_steps num_steps iterations "},
    {"train.warmup_steps", " warmup_iters warmup "},
    {"train.grad_accum", " gradient_accumulation_steps accumulate_grad_batches "},
    {"train.grad_clip", " gradient_clip_val clip "},
    {"train.precision", " dtype "},
    {"eval.every", " eval_interval "},
    {"eval.batches", " eval_iters "},
    {"log.every", " log_interval "},
};

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

std::vector<const Field*> settle(RunConfig& config) {
  std::vector<const Field*> changed;
  for (const Field& field : fields()) {
    if (field.idle_value.is_null() || field.used_in(config) || field.get(config) == field.idle_value)
      continue;
    field.set(config, field.idle_value);
    changed.push_back(&field);
  }
  return changed;
}

const Field* find_field(std::string_view key) {
  const auto found =
      std::find_if(fields().begin(), fields().end(), [&](const Field& f) { return f.key == key; });
  return found == fields().end() ? nullptr : &*found;
}

bool is_section(std::string_view key) {
  const std::string prefix = std::string(key) + ".";
  return std::any_of(fields().begin(), fields().end(),
                     [&](const Field& f) { return f.key.starts_with(prefix); });
}

std::string key_called(std::string_view word) {
  std::string plain(word);
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const Field& field : fields()) {
    if (plain == field.key || plain == last_part(field.key)) return field.key;
  }
  for (const OtherNames& other : other_names) {
    if (other.words.find(text(' ', last_part(plain), ' ')) != std::string_view::npos) return other.key;
  }
  return "";
}

std::string nearest_key(std::string_view key) {
  if (const std::string called = key_called(key); !called.empty()) return called;
  std::vector<std::string> whole, last;  // last: what a key is called when its section is wrong or missing
  for (const Field& field : fields()) {
    const std::string section = field.key.substr(0, field.key.find('.'));
    if (std::find(whole.begin(), whole.end(), section) == whole.end()) whole.push_back(section);
    whole.push_back(field.key);
    last.emplace_back(last_part(field.key));
  }
  if (const std::string best = nearest(key, whole); !best.empty()) return best;
  const auto found = std::find(last.begin(), last.end(), nearest(last_part(key), last));
  return found == last.end() ? "" : fields()[static_cast<std::size_t>(found - last.begin())].key;
}

std::string default_text(const Field& field) {
  if (field.required) return "required";
  if (!field.default_words.empty()) return field.default_words;
  const nlohmann::ordered_json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(value.get<double>());  // 0, where JSON writes 0.0
  return value.is_string() && value != "" ? value.get<std::string>() : value.dump();
}

}  // namespace normscope
