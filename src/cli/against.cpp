// A measurement held against the theory: `predict CONFIG --against`.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/predict.h"
#include "cli/terminal.h"
#include "io/csv.h"
#include "io/safetensors.h"
#include "io/utf8.h"
#include "kernels/pointwise.h"
#include "run/folder.h"
#include "run/record.h"
#include "telemetry/site_statistics.h"

namespace normscope {
namespace {

namespace fs = std::filesystem;

// What is measured of a site, and what predicts it.
struct Quantity {
  const char *name, *tensor, *column;  // tensor: the prefix of its name in an exchange file
  double SitePrediction::*rms;
  double SitePrediction::*spread;
};
constexpr Quantity quantities[] = {
    {"activation", "act.", "rms", &SitePrediction::rms, &SitePrediction::rms_spread},
    {"gradient", "act_grad.", "grad_rms", &SitePrediction::grad_rms, &SitePrediction::spread}};

struct Measurement {
  std::map<Place, double> squares[2];  // means, of each quantity; some sites or all
  double seeds = 0;
  double tokens = 0;  // that the loss is a mean over
  Index batch = 1;    // sequences over which a norm over the batch went
};

// A logged run of this program: step 0 of a probe, 1 of a run. Adds one seed.
void add_run(const RunConfig& config, const std::string& folder, Measurement& sum) {
  const RunRecord run = read_run(folder);
  const ModelConfig &own = run.config.model, &wanted = config.model;
  const bool probe = run.status == status_probe;
  const auto stop = [&](const auto&... what) { refuse("predict", escape_controls(folder), ": ", what...); };
  if (!probe && own.dropout > 0) stop("its steps have dropout, and a prediction has none; probe its config");
  if (own.n_layer != wanted.n_layer || own.context != wanted.context)
    stop(own.n_layer, " blocks and context ", own.context, "; the config has ", wanted.n_layer, " and ",
         wanted.context);
  const double tokens = static_cast<double>(run.config.tokens_per_step());
  if (sum.seeds > 0 && tokens != sum.tokens) stop("another batch size than the runs before it");
  sum.tokens = tokens;
  sum.batch = run.config.train.batch_size;
  CsvReader log((fs::path(folder) / layers_file).string());
  for (const Place& place : places_of(wanted.n_layer)) {
    if (!log.next() || log.count("step") != (probe ? 0 : 1) || log.cell("site") != name_of(place.site))
      stop("no rows of the first step in ", layers_file);
    for (int q = 0; q < 2; ++q)
      sum.squares[q][place] += std::pow(log.number(quantities[q].column).value_or(std::nan("")), 2);
  }
  ++sum.seeds;
}

// An exchange file, of whatever program: the sites that it has.
Measurement read_exchange(const RunConfig& config, const std::string& path) {
  const SafetensorsFile file(path);
  Measurement found;
  found.seeds = 1;
  for (const Place& place : places_of(config.model.n_layer)) {
    for (int q = 0; q < 2; ++q) {
      const TensorInfo* tensor = file.find(text(quantities[q].tensor, place.layer, '.', name_of(place.site)));
      if (tensor == nullptr) continue;
      if (tensor->shape.size() != 3 || tensor->shape[1] != config.model.context || tensor->count == 0)
        refuse("predict", escape_controls(path), ": ", tensor->name, " is ", shape_text(tensor->shape),
               "; expected (B, T, width) with T = ", config.model.context);
      std::vector<float> x(static_cast<std::size_t>(tensor->count));
      file.read_into(tensor->name, x.data(), tensor->count);
      found.squares[q][place] = sum_squares(tensor->count, x.data()) / static_cast<double>(tensor->count);
      found.tokens = static_cast<double>(tensor->shape[0] * tensor->shape[1]);
      found.batch = tensor->shape[0];
    }
  }
  if (found.tokens == 0)
    refuse("predict", escape_controls(path),
           ": no tensor named as act.1.stream; `normscope predict --help` shows how");
  return found;
}

Measurement read_measurement(const RunConfig& config, const std::string& path) {
  if (!fs::is_directory(path)) return read_exchange(config, path);
  Measurement sum;
  for (const std::string& folder : run_folders(path)) add_run(config, folder, sum);
  for (auto& squares : sum.squares) {
    for (auto& [place, square] : squares) square /= sum.seeds;
  }
  return sum;
}

// Measured over predicted rms of a site, and how far the logarithm of that may be from 0.
struct Ratio {
  Place place;
  double ratio, limit;
  bool off() const { return !(std::abs(std::log(ratio)) <= limit); }
};

// Of the sites that were measured.
std::vector<Ratio> ratios_of(int q, const Measurement& measured, const Prediction& prediction,
                             double tolerance) {
  std::vector<Ratio> ratios;
  for (const SitePrediction& site : prediction.sites) {
    const auto square = measured.squares[q].find(site.place);
    if (square == measured.squares[q].end()) continue;
    const double rms = std::sqrt(square->second), predicted = site.*quantities[q].rms;
    ratios.push_back({site.place, predicted == 0 && rms == 0 ? 1 : rms / predicted,
                      std::log1p(tolerance) + 3 * site.*quantities[q].spread / std::sqrt(measured.seeds)});
  }
  return ratios;
}

void print_ratios(const std::vector<Ratio>& ratios, Index n_layer) {
  Columns columns{{"layer"}};
  for (Index layer = 0; layer <= n_layer + 1; ++layer) columns[0].push_back(text(layer));
  for (const char* site : site_names) {
    std::vector<std::string> column(columns[0].size());
    for (const Ratio& r : ratios) {
      if (name_of(r.place.site) != std::string_view(site)) continue;
      column[0] = site;
      column[r.place.layer + 1] = fixed(r.ratio, 2) + (r.off() ? " !" : "  ");
    }
    if (!column[0].empty()) columns.push_back(column);
  }
  print_table(columns);
}

std::string place_text(Place place, Index n_layer) {
  if (place.layer == 0) return "the embedding output";
  if (place.layer > n_layer) return text("the head's ", name_of(place.site));
  return text("block ", place.layer, "'s ", name_of(place.site));
}

}  // namespace

Exit print_against(const RunConfig& config, const TextStatistics& text_statistics, const std::string& path,
                   double tolerance) {
  const Measurement measured = read_measurement(config, path);
  const Prediction prediction =
      predict(config.model, measured.tokens, text_statistics, {.batch = measured.batch});
  std::string first;  // site to leave
  for (int q = 0; q < 2; ++q) {
    std::vector<Ratio> ratios = ratios_of(q, measured, prediction, tolerance);
    if (ratios.empty()) continue;
    std::cout << quantities[q].name << "s, measured over predicted\n\n";
    print_ratios(ratios, config.model.n_layer);
    std::cout << '\n';
    // Values leave on their way forward, gradients on their way back; a wrong value spoils gradients
    // everywhere.
    if (q == 1) std::ranges::reverse(ratios);
    const auto off = std::ranges::find_if(ratios, &Ratio::off);
    if (off == ratios.end() || !first.empty()) continue;
    first =
        text("first to leave: the ", quantities[q].name, " at ", place_text(off->place, config.model.n_layer),
             ", ", significant_text(off->ratio), " of the prediction; expected within ",
             significant_text(100 * std::expm1(off->limit)), "%\n");
  }
  std::cout << (first.empty() ? "all sites are as predicted\n" : first);
  return first.empty() ? Exit::ok : Exit::failure;
}

}  // namespace normscope
