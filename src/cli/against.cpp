#include "cli/against.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

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

// Mean squares of what was measured, some sites or all.
struct Measurement {
  std::map<Place, double> value, gradient;
  double seeds = 0;
  double tokens = 0;  // that the loss is a mean over
  Index batch = 1;    // sequences over which a norm over the batch went
};

// A logged run of this program: step 0 of a probe, 1 of a run. Adds one seed.
void add_run(const RunConfig& config, const std::string& folder, Measurement& sum) {
  const RunRecord run = read_run(folder);
  const bool probe = run.status == status_probe;
  if (!probe && run.config.model.dropout > 0)
    refuse("predict", escape_controls(folder),
           ": its steps have dropout, and a prediction has none; probe its config");
  if (run.config.model.n_layer != config.model.n_layer || run.config.model.context != config.model.context)
    refuse("predict", escape_controls(folder), ": ", run.config.model.n_layer, " blocks and context ",
           run.config.model.context, "; the config has ", config.model.n_layer, " and ",
           config.model.context);
  const double tokens = static_cast<double>(run.config.train.batch_size * run.config.train.grad_accum *
                                            run.config.model.context);
  if (sum.seeds > 0 && tokens != sum.tokens)
    refuse("predict", escape_controls(folder), ": another batch size than the runs before it");
  sum.tokens = tokens;
  sum.batch = run.config.train.batch_size;
  CsvReader log((fs::path(folder) / layers_file).string());
  const std::vector<Place> places = places_of(config.model.n_layer);
  for (const Place& place : places) {
    if (!log.next() || log.count("step") != (probe ? 0 : 1) || log.cell("site") != name_of(place.site))
      refuse("predict", escape_controls(folder), ": no rows of the first step in ", layers_file);
    const auto square = [&](const char* column) {
      return std::pow(log.number(column).value_or(std::nan("")), 2);
    };
    sum.value[place] += square("rms");
    sum.gradient[place] += square("grad_rms");
  }
  ++sum.seeds;
}

// An exchange file, of whatever program: the sites that it has.
Measurement read_exchange(const RunConfig& config, const std::string& path) {
  const SafetensorsFile file(path);
  Measurement found;
  found.seeds = 1;
  for (const Place& place : places_of(config.model.n_layer)) {
    const auto read = [&](const char* kind, std::map<Place, double>& into) {
      const TensorInfo* tensor = file.find(text(kind, place.layer, '.', name_of(place.site)));
      if (tensor == nullptr) return;
      if (tensor->shape.size() != 3 || tensor->shape[1] != config.model.context || tensor->count == 0)
        refuse("predict", escape_controls(path), ": ", tensor->name, " is ", shape_text(tensor->shape),
               "; expected (B, T, width) with T = ", config.model.context);
      std::vector<float> x(static_cast<std::size_t>(tensor->count));
      file.read_into(tensor->name, x.data(), tensor->count);
      into[place] = sum_squares(tensor->count, x.data()) / static_cast<double>(tensor->count);
      found.tokens = static_cast<double>(tensor->shape[0] * tensor->shape[1]);
      found.batch = tensor->shape[0];
    };
    read("act.", found.value);
    read("act_grad.", found.gradient);
  }
  if (found.value.empty() && found.gradient.empty())
    refuse("predict", escape_controls(path),
           ": no tensor named as act.1.stream; `normscope predict --help` shows how");
  return found;
}

Measurement read_measurement(const RunConfig& config, const std::string& path) {
  if (!fs::is_directory(path)) return read_exchange(config, path);
  Measurement sum;
  for (const std::string& folder : run_folders(path)) add_run(config, folder, sum);
  for (auto* part : {&sum.value, &sum.gradient}) {
    for (auto& [place, square] : *part) square /= sum.seeds;
  }
  return sum;
}

// Measured over predicted rms; nothing where one of them is missing.
struct Ratio {
  std::optional<double> ratio;
  bool off = false;
};

Ratio ratio_of(const std::map<Place, double>& measured, Place place, double predicted, double spread,
               double tolerance) {
  const auto found = measured.find(place);
  if (found == measured.end()) return {};
  const double ratio = predicted == 0 && found->second == 0 ? 1 : std::sqrt(found->second) / predicted;
  return {ratio, !(std::abs(std::log(ratio)) <= std::log1p(tolerance) + 3 * spread)};
}

void print_ratios(const char* title, const std::vector<Ratio>& ratios, const Prediction& prediction) {
  const int last = prediction.sites.back().place.layer;
  std::vector<std::vector<std::string>> columns{{"layer"}};
  for (int layer = 0; layer <= last; ++layer) columns[0].push_back(text(layer));
  for (std::size_t s = 0; s < site_names.size(); ++s) {
    std::vector<std::string> column(static_cast<std::size_t>(last) + 2);
    column[0] = site_names[s];
    bool some = false;
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      const Place place = prediction.sites[i].place;
      if (place.site != static_cast<Site>(s) || !ratios[i].ratio) continue;
      column[static_cast<std::size_t>(place.layer) + 1] =
          fixed(*ratios[i].ratio, 2) + (ratios[i].off ? " !" : "  ");
      some = true;
    }
    if (some) columns.push_back(column);
  }
  std::cout << title << ", measured over predicted\n\n";
  print_table(columns);
  std::cout << '\n';
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
  std::vector<Ratio> values, gradients;
  for (const SitePrediction& site : prediction.sites) {
    const double few = 1 / std::sqrt(measured.seeds);
    values.push_back(ratio_of(measured.value, site.place, site.rms, few * site.rms_spread, tolerance));
    gradients.push_back(ratio_of(measured.gradient, site.place, site.grad_rms, few * site.spread, tolerance));
  }
  if (!measured.value.empty()) print_ratios("activations", values, prediction);
  if (!measured.gradient.empty()) print_ratios("gradients", gradients, prediction);

  // Values leave on their way forward, gradients on their way back; a wrong value spoils gradients
  // everywhere.
  const auto off = [](const Ratio& r) { return r.off; };
  const auto value = std::find_if(values.begin(), values.end(), off);
  const auto gradient = std::find_if(gradients.rbegin(), gradients.rend(), off);
  const auto say = [&](const char* what, const Ratio& ratio, std::size_t i, double spread) {
    std::cout << "first to leave: " << what << ' '
              << place_text(prediction.sites[i].place, config.model.n_layer) << ", "
              << significant_text(*ratio.ratio) << " of the prediction; expected within "
              << significant_text(
                     100 * (std::expm1(std::log1p(tolerance) + 3 * spread / std::sqrt(measured.seeds))))
              << "%\n";
  };
  if (value != values.end()) {
    const auto i = static_cast<std::size_t>(value - values.begin());
    say("the activation at", *value, i, prediction.sites[i].rms_spread);
  } else if (gradient != gradients.rend()) {
    const auto i = static_cast<std::size_t>(gradients.rend() - gradient) - 1;
    say("the gradient at", *gradient, i, prediction.sites[i].spread);
  } else {
    std::cout << "all sites are as predicted\n";
    return Exit::ok;
  }
  return Exit::failure;
}

}  // namespace normscope
