// normscope measure RUN|FILE|CONFIG: what costs more than a row of a log.
#include "measure/measure.h"

#include <iostream>

#include "cli/predict.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"
#include "model/cost.h"

namespace normscope {
namespace {

using nlohmann::ordered_json;

Wanted wanted_of(const CommandLine& line) {
  const std::vector<std::string> names(measure_names.begin(), measure_names.end());
  Wanted wanted{};
  for (const std::string& name : split(line.text_of("only").value_or(join(names, ",")))) {
    const auto at = std::ranges::find(names, name);
    if (at == names.end())
      refuse("measure", "--only: '", escape_controls(name), "' is none of ", join(names));
    wanted[at - names.begin()] = true;
  }
  return wanted;
}

// Loads a run or a model file, or initialises a config's model.
std::unique_ptr<LoadedModel> model_of(const CommandLine& line) {
  const std::string& path = line.positionals()[0];
  if (!path.ends_with(".json")) {
    if (line.has("set")) refuse("measure", "--set is for a config; ", escape_controls(path), " has its own");
    return load_model(path);
  }
  const RunConfig config = load_config(path, line.all_of("set")).config;
  const Vocabulary vocab = corpus_of(config).vocab;
  require_memory(config.model, vocab.size(), config.train.batch_size);
  auto loaded = std::make_unique<LoadedModel>(config, vocab);
  initialise(config.model, loaded->model.layout(), config.train.seed, loaded->model.parameters);
  loaded->path = path;
  return loaded;
}

std::vector<Token> text_of(const CommandLine& line, const LoadedModel& model) {
  const std::optional<std::string> file = line.text_of("data");
  std::vector<Token> tokens =
      file ? model.vocab.encode(read_text(*file), "measure") : corpus_of(model, "measure").val;
  if (tokens.size() >= 2) return tokens;
  refuse("measure", file.value_or("the validation split"), " has ", tokens.size(),
         " characters; needs 2 at least; name a text with --data FILE");
}

void print_json(const LoadedModel& model, const Wanted& wanted, const Measures& found) {
  ordered_json root{{"model", model.path}, {"step", model.step}, {"loss", found.loss}};
  for (std::size_t l = 0; l < found.layers.size(); ++l) {
    ordered_json& row = root["layers"].emplace_back(ordered_json{{"layer", l}});
    for (std::size_t m = 0; m < found.layers[l].size(); ++m) {
      const std::optional<double>& value = found.layers[l][m];
      if (wanted[m]) row[measure_names[m]] = value ? ordered_json(*value) : nullptr;
    }
  }
  if (wanted[Measure::amplification]) root["amplification_error"] = found.amplification_error;
  if (const auto& s = found.sharpness)
    root["sharpness"] = {{"value", s->value},
                         {"residual", s->residual},
                         {"difference_error", s->difference_error},
                         {"products", s->products}};
  std::cout << json_text(root);
}

void print_text(const LoadedModel& model, const Wanted& wanted, const Measures& found) {
  Columns columns = {{"layer"}};
  for (std::size_t l = 0; l < found.layers.size(); ++l) columns[0].push_back(text(l));
  for (std::size_t m = 0; m < Measure::sharpness; ++m) {
    if (!wanted[m]) continue;
    columns.push_back({measure_names[m]});
    for (const auto& layer : found.layers) columns.back().push_back(layer[m] ? fixed(*layer[m], 4) : "");
  }
  std::cout << escape_controls(model.path) << ", step " << model.step << ": loss " << fixed(found.loss, 4)
            << '\n';
  if (columns.size() > 1) print_table(columns);
  if (wanted[Measure::amplification]) {
    const double a = *found.layers.back()[Measure::amplification];
    std::cout << "amplification " << significant_text(a) << " ± "
              << significant_text(found.amplification_error, 2) << ": " << amplification_text(a) << '\n';
  }
  if (const auto& s = found.sharpness)
    std::cout << "sharpness " << significant_text(s->value, 4) << " ± " << significant_text(s->residual, 2)
              << ": plain gradient descent is unstable at rates above " << significant_text(2 / s->value)
              << " (" << s->products << " Hessian-vector products, relative error "
              << significant_text(s->difference_error, 1) << ")\n";
}

Exit run(const CommandLine& line) {
  const Wanted wanted = wanted_of(line);
  const std::unique_ptr<LoadedModel> loaded = model_of(line);
  const RunConfig& config = loaded->config;
  set_up_threads(line, config.train.threads);
  const Index batch_size = std::max<Index>(1, config.train.batch_size);
  if (wanted[Measure::amplification] || wanted[Measure::sharpness])  // in double, beside the model in float
    require_memory(config.model, loaded->vocab.size(), batch_size, 3);
  const Index batches = line.number_of<Index>("batches", 0, 1'000'000, config.eval.batches);
  const Measures found = measure(loaded->model, text_of(line, *loaded), batch_size, batches, wanted);
  (line.has("json") ? print_json : print_text)(*loaded, wanted, found);
  return Exit::ok;
}

}  // namespace

const Command measure_command = {
    .name = "measure",
    .arguments = "RUN|FILE|CONFIG",
    .purpose = "loss by layer, rank, amplification, sharpness: what costs more than a log",
    .details = R"(
Of the weights of a run or of a file, or of a config's initialisation, on windows of the validation split.
Of the stream x_l that leaves block l (0: the embedding):

  lens           loss (nats) of the head on x_l, behind the final norm, its statistics taken anew on x_l
                 (logit lens: nostalgebraist 2020)
  without        loss (nats) if block l does nothing, x_l = x_{l-1} (Veit et al. 2016, arXiv 1605.06431)
  rank           effective rank of the (tokens, C) matrix, not centred: e^H, H = -sum p ln p, p its singular
                 values over their sum; from 1 to C (Roy & Vetterli 2007)
  token_cosine   mean cosine of two different tokens of a sequence (Ethayarajh 2019, arXiv 1909.00512)
  amplification  |dx_l|^2/|x_l|^2/d^2 if every entry of the blocks' matrices is multiplied by 1 + d N(0, 1):
                 at L the A of `predict`; the mean over 8 draws, and its standard error

Of the loss of a training step, without dropout:

  sharpness      largest eigenvalue of its Hessian in all parameters (Cohen et al. 2021, arXiv 2103.00065), by
                 Lanczos' recurrence; an eigenvalue lies within ±. A product H v is a central difference of
                 gradients; its error is what twice the step changes.

Amplification and sharpness are of one batch, in double. Batch norm goes by its running statistics; in
sharpness, and in lens below L, by the batch's.
)",
    .options = {set_option,
                threads_option,
                {"only", "NAMES", "some of these, with commas between (default: all)"},
                {"batches", "K", "batches of the validation split (default: eval.batches; 0: all of it)"},
                {"data", "FILE", "a UTF-8 text instead"},
                {"json", "", "as JSON, with all figures"}},
    .run = run};

}  // namespace normscope
