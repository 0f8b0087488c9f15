// normscope predict CONFIG: what a probe will measure, by theory; no weight is drawn.
#include "cli/predict.h"

#include <cmath>
#include <iostream>

#include "cli/session.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/load.h"
#include "io/csv.h"
#include "io/json.h"
#include "io/utf8.h"
#include "run/record.h"

namespace normscope {
namespace {

using nlohmann::ordered_json;

// What follows for training, a sentence each.
std::vector<std::string> warnings_on(const RunConfig& config, const Prediction& prediction,
                                     Index vocabulary) {
  std::vector<std::string> all;
  // Of the bundled experiments without warm-up at a rate of 1e-3: mix of 24 blocks (13.6) learns, post-norm
  // of 12 (16.6) and of 24 (34) and pre-norm without residuals of 24 (97) do not.
  constexpr double stuck = 15, rate = 5e-4, sharp = 4;
  if (prediction.amplification > stuck && config.train.warmup_steps == 0 && config.train.lr >= rate)
    all.push_back(
        text("amplification ", significant_text(prediction.amplification), ": above ", stuck,
             ", runs without warm-up stayed at the unigram level at lr 1e-3 (configs/papers, deep and "
             "warmup); try train.warmup_steps=200, or a placement of lower amplification"));
  const double score_std = std::ranges::max(prediction.layers, {}, &LayerPrediction::score_std).score_std;
  std::vector<SiteRow> rows;
  for (const SitePrediction& site : prediction.sites) {
    rows.emplace_back().place = site.place;
    rows.back().rms = site.rms;
  }
  if (score_std > sharp)
    all.push_back(text("attention is sharp from the start: scores have a standard deviation of ",
                       significant_text(score_std), "; qk_norm holds it near 1"));
  if (const auto share = branch_share(rows); share && branches_too_small(config.model, *share))
    all.push_back(text("what branches add is ", significant_text(100 * *share),
                       "% of the stream: the place of the norms can hardly matter"));
  const double uniform = std::log(static_cast<double>(vocabulary));
  if (prediction.loss > 1.5 * uniform)
    all.push_back(text("the first loss is ", significant_text(prediction.loss), ", that of equal odds ",
                       fixed(uniform, 2),
                       ": the logits are too large; try a smaller model.init.embed_std, or an untied head"));
  return all;
}

const SitePrediction& site_of(const Prediction& prediction, int layer, Site site) {
  const auto row = std::ranges::find(prediction.sites, Place{layer, site}, &SitePrediction::place);
  require(row != prediction.sites.end(), "predict", "no site ", name_of(site), " in layer ", layer);
  return *row;
}

void print_layers(const Prediction& prediction) {
  Columns table;
  add_row(table, {"layer", "stream", "attn_out", "ffn_out", "gradient", "seeds ±", "entropy", "max score",
                  "tokens", "input"});
  for (std::size_t l = 0; l < prediction.layers.size(); ++l) {
    const int layer = static_cast<int>(l);
    const LayerPrediction& row = prediction.layers[l];
    const SitePrediction& stream = site_of(prediction, layer, Site::stream);
    const auto branch = [&](Site site) {
      return l == 0 ? "" : significant_text(site_of(prediction, layer, site).rms);
    };
    add_row(table, {text(layer), significant_text(stream.rms), branch(Site::attn_out), branch(Site::ffn_out),
                    significant_text(stream.grad_rms), text(std::lround(100 * stream.spread), '%'),
                    l == 0 ? "" : fixed(row.entropy, 2), l == 0 ? "" : fixed(row.max_score, 2),
                    fixed(row.similarity, 3), fixed(row.share, 3)});
  }
  print_table(table);
}

void print_csv(const Prediction& prediction) {
  CsvRows rows({"layer", "site", "rms", "grad_rms", "spread"});
  for (const SitePrediction& site : prediction.sites)
    rows.row(site.place.layer, name_of(site.place.site), site.rms, site.grad_rms, site.spread);
  std::cout << rows.header() << rows.text();
}

void print_json(const Prediction& prediction, const std::vector<std::string>& warnings) {
  ordered_json root{{"loss", prediction.loss},
                    {"amplification", prediction.amplification},
                    {"bf16_error", prediction.bf16_error()},
                    {"layers", ordered_json::array()},
                    {"sites", ordered_json::array()},
                    {"warnings", warnings}};
  for (std::size_t l = 0; l < prediction.layers.size(); ++l) {
    const LayerPrediction& layer = prediction.layers[l];
    root["layers"].push_back(
        {{"layer", l}, {"token_cosine", layer.similarity}, {"input_cosine", layer.share}});
    if (l > 0)
      root["layers"].back().update(
          {{"entropy", layer.entropy}, {"max_score", layer.max_score}, {"score_std", layer.score_std}});
  }
  for (const SitePrediction& site : prediction.sites)
    root["sites"].push_back({{"layer", site.place.layer},
                             {"site", name_of(site.place.site)},
                             {"rms", site.rms},
                             {"rms_spread", site.rms_spread},
                             {"grad_rms", site.grad_rms},
                             {"spread", site.spread}});
  std::cout << json_text(root);
}

void print_all(const RunConfig& config, const Prediction& prediction,
               const std::vector<std::string>& warnings) {
  std::cout << escape_controls(config.name) << ": means over seeds, before any training\n\n";
  print_layers(prediction);
  std::cout << "\nstream, attn_out, ffn_out: rms; gradient: rms of the stream's; seeds ±: its spread from "
               "seed to seed\n"
               "entropy (nats) and largest score of attention; tokens: cosine of two tokens; input: of x_0 "
               "and x_l\n\n"
               "first loss     "
            << fixed(prediction.loss, 3) << "\namplification  " << significant_text(prediction.amplification)
            << ": " << amplification_text(prediction.amplification) << "\nbf16 error     "
            << significant_text(100 * prediction.bf16_error())
            << "% of the stream, with train.precision=bf16\n";
  for (const std::string& warning : warnings) std::cout << "\nnote: " << warning << '\n';
}

Exit run(const CommandLine& line) {
  line.require_one("csv", "json");
  if (line.has("against") && (line.has("csv") || line.has("json")))
    refuse("predict", "--against prints a table; leave out --csv and --json");
  if (line.has("tolerance") && !line.has("against")) refuse("predict", "--tolerance is for --against");
  const RunConfig config = load_config(line.positionals()[0], line.all_of("set")).config;
  const Corpus corpus = corpus_of(config);
  const TextStatistics statistics = text_statistics(corpus, config.model.context);
  if (const std::optional<std::string> measured = line.text_of("against"))
    return print_against(config, statistics, *measured, line.number_of<double>("tolerance", 0, 10, 0.1));
  const double tokens = static_cast<double>(config.tokens_per_step());
  const Prediction prediction = predict(config.model, tokens, statistics, {.batch = config.train.batch_size});
  const std::vector<std::string> warnings = warnings_on(config, prediction, statistics.vocabulary);
  line.has("csv")    ? print_csv(prediction)
  : line.has("json") ? print_json(prediction, warnings)
                     : print_all(config, prediction, warnings);
  return Exit::ok;
}

}  // namespace

std::string amplification_text(double amplification) {
  return text("noise of 1% in every matrix moves the stream by ", significant_text(std::sqrt(amplification)),
              "%");
}

std::string start_text(const ModelConfig& config, const TextStatistics& statistics, const std::string& indent,
                       const TheoryOptions& options) {
  try {
    const Prediction start = predict(config, 1, statistics, options);
    const SitePrediction &first = start.sites.front(), &last = *(start.sites.end() - 3);  // of the stream
    return text(
        indent, "the stream grows ", significant_text(last.rms / first.rms), "-fold; its gradient at x_0 is ",
        significant_text(first.grad_rms / last.grad_rms), " times that at x_L\n", indent,
        "cos(x_0, x_L) = ", significant_text(start.layers.back().share),
        ", the part of the gradient that comes by the identity path alone\n", indent, "amplification ",
        significant_text(start.amplification), ": ",
        start.amplification == 0
            ? "no branch reaches the stream yet, nor does its rounding\n"
            : text("bf16 is off by ", significant_text(100 * start.bf16_error()), "% of the stream\n"));
  } catch (const Error& error) {
    return indent + error.what() + '\n';
  }
}

std::string start_text(const Placement& row, Index n_layer) {
  constexpr Index characters = 65;
  ModelConfig config;
  config.n_layer = n_layer;
  config.context = 1;
  config.norm = row.has_norms() ? NormKind::layernorm : NormKind::none;
  config.norm_placement = {row.kind};
  config.final_norm = row.final_norm;
  config.qkv_norm = row.qkv_norm;
  config.activation = Activation::relu;
  config.position = Position::none;
  config.tie_embeddings = false;
  config.init = {.scheme = InitScheme::xavier_normal, .embed_std = 1, .residual_scaling = false};
  return start_text(config, {characters, {1, 1.0 / characters}}, "    ", {.finite_width = false});
}

const Command predict_command = {
    .name = "predict",
    .arguments = "CONFIG",
    .purpose = "what a probe will measure, by theory; no weight is drawn",
    .details =
        "Mean-field theory of fresh weights: activations and gradients of every layer, attention, the first\n"
        "loss, what rounding does. --against holds a measurement against it, of this program or of any "
        "other:\n"
        "a safetensors file of act.<layer>.<site>, and act_grad.<layer>.<site> of the mean loss, (B, T, "
        "width)\n"
        "each, with the site names of layers.csv and blocks from 1. From PyTorch:\n\n"
        "  sites = {}\n"
        "  def tap(name): return lambda block, x, y: sites.update({name: y}) or y.retain_grad()\n"
        "  for l, block in enumerate(model.blocks, 1):\n"
        "      block.register_forward_hook(tap(f\"{l}.stream\"))\n"
        "      block.attn.register_forward_hook(tap(f\"{l}.attn_out\"))\n"
        "      block.ffn.register_forward_hook(tap(f\"{l}.ffn_out\"))\n"
        "  loss(model(tokens), targets).backward()\n"
        "  tensors = {f\"act.{k}\": y for k, y in sites.items()}\n"
        "  tensors |= {f\"act_grad.{k}\": y.grad for k, y in sites.items()}\n"
        "  safetensors.torch.save_file(tensors, \"mine.safetensors\")\n\n"
        "Exit code 1 if a site is off by more than --tolerance and three times what seeds differ by, 2 where "
        "the\n"
        "theory has no prediction.",
    .options = {set_option,
                {"csv", "", "as CSV: layer,site,rms,grad_rms,spread"},
                {"json", "", "as JSON, with all figures"},
                {"against", "RUN|FOLDER|FILE",
                 "a probe, a run's first step, or a safetensors file, over the prediction"},
                {"tolerance", "X", "how far off a site may be, relatively (default: 0.1)"}},
    .run = run};

}  // namespace normscope
