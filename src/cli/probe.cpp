// normscope probe CONFIG: activations and gradients without training.
#include "train/probe.h"

#include <cmath>
#include <iostream>
#include <numeric>

#include "cli/session.h"
#include "cli/terminal.h"
#include "config/fields.h"
#include "config/load.h"
#include "io/utf8.h"
#include "logs/record.h"
#include "model/cost.h"

namespace normscope {
namespace {

struct Figure {
  std::optional<double> RunRecord::*member;
  bool is_loss;  // written with four digits after the point, others with three significant ones
  std::size_t width;
  std::vector<double> values = {};  // of the seeds so far
};

// "2.5123"; of several values mean and sample standard deviation, "2.550 ± 0.071": two significant digits of
// the latter, and as many of the mean after the point.
std::string figure_text(const std::vector<double>& values, bool is_loss) {
  const double count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double deviation = std::sqrt(squares / (count - 1));  // NaN of one value
  const double digits = 1 - std::floor(std::log10(deviation));
  if (digits >= 0 && digits <= 6)
    return fixed(mean, static_cast<int>(digits)) + " ± " + fixed(deviation, static_cast<int>(digits));
  const std::string text = is_loss && std::abs(mean) < 100 ? fixed(mean, 4) : significant_text(mean);
  return values.size() < 2 ? text : text + " ± " + significant_text(deviation, 2);
}

Exit run(const CommandLine& line) {
  RunConfig config = load_config(line.positionals()[0], line.all_of("set")).config;
  set_up_threads(line, config.train.threads);
  const Corpus corpus = corpus_of(config);
  require_memory(config.model, corpus.vocab.size(), config.train.batch_size);

  const Index seeds = line.number_of<Index>("seeds", 1, 100'000, 1);
  const std::filesystem::path out = line.text_of("out").value_or("runs/" + config.name + "-probe");
  const std::optional<std::string> from = line.text_of("from");
  ProbeOptions options{line.number_of<Index>("batches", 1, 1'000'000, 1), from ? weights_of(*from) : "", ""};
  const Existing existing = line.has("overwrite") ? Existing::overwrite : Existing::refuse;

  const Index first_seed = config.train.seed;
  const auto folder_of = [&](Index seed) { return (out / ("seed-" + std::to_string(seed))).string(); };
  RunConfig last = config;
  if (const std::string problem = find_field("train.seed")->set(last, first_seed + seeds - 1);
      !problem.empty())
    refuse("probe", "--seeds: train.seed of the last one: ", problem);
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed)  // before the first is computed
    require_usable(folder_of(seed), existing);
  bool diverged = false;
  Figure figures[] = {{&RunRecord::final_train_loss, true, 17},
                      {&RunRecord::grad_first_last, false, 20},
                      {&RunRecord::growth, false, 0}};
  const auto print_row = [&](const std::string& title, bool all_seeds) {
    std::cout << aligned_left(title, 6);
    for (const auto& [member, is_loss, width, values] : figures)
      std::cout << aligned_left(figure_text(all_seeds ? values : std::vector<double>{values.back()}, is_loss),
                                width);
    std::cout << std::endl;
  };
  for (Index seed = first_seed; seed < first_seed + seeds; ++seed) {
    config.train.seed = seed;
    options.dump = seed == first_seed ? line.text_of("dump").value_or("") : "";
    RunFolder folder(folder_of(seed), existing);
    const RunRecord result = probe(config, corpus, options, folder);
    if (seed == first_seed) std::cout << "seed  loss             grad first/last     growth\n";
    for (Figure& figure : figures) figure.values.push_back(*(result.*figure.member));
    print_row(std::to_string(seed), false);
    if (result.first_nonfinite) {
      diverged = true;
      print_error(text("[probe] seed ", seed, ", batch ", result.first_nonfinite->step, ": ",
                       text_of(*result.first_nonfinite, config.model.n_layer),
                       " is not finite; the rows are in ", folder.file(layers_file),
                       "; try another model.init or model.norm_placement"));
    }
  }
  if (seeds > 1) print_row("all", true);
  std::cout << "in " << escape_controls(out.string()) << '\n';
  return diverged ? Exit::diverged : Exit::ok;
}

}  // namespace

const Command probe_command = {
    .name = "probe",
    .arguments = "CONFIG",
    .purpose = "activations and gradients at initialisation, or of given weights",
    .details = "Of every layer, without training.",
    .options = {set_option,
                threads_option,
                {"seeds", "N", "seeds, from train.seed up (default: 1)"},
                {"batches", "K",
                 "batches a seed (default: 1); over them layers.csv has root mean squares, params.csv the "
                 "norm of the mean gradient and the mean of the norms"},
                {"from", "RUN|FILE", "take the weights of a run or of a safetensors file"},
                {"dump", "FILE", "write every tensor of the first seed's first batch to a safetensors file"},
                {"out", "DIR", "folder of the seeds' folders (default: runs/<name>-probe)"},
                {"overwrite", "", "replace an earlier probe in that folder"}},
    .run = run};

}  // namespace normscope
