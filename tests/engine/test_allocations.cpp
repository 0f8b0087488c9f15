// "In the steady state a step allocates nothing": counted at operator new and at the arena.
#include <atomic>
#include <cstdlib>
#include <new>

#include "config_texts.h"
#include "data/ngram.h"
#include "logs/site_stats.h"
#include "train/optimizer.h"
#include "train/step.h"

namespace {
std::atomic<long> allocations{0};
}  // namespace

// Replaces the whole test program's operator new by one that counts, but where ThreadSanitizer has one of its
// own. Both come from malloc, as the matching deletes expect; the compiler cannot see that and warns.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if !__has_feature(thread_sanitizer)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

using namespace normscope;

TEST_CASE("step: nothing is allocated after the first ones, with taps on and dropout, at any thread count") {
  RunConfig config = normscope::testing::config_of(
      "model.n_layer=2 model.n_head=2 model.d_model=16 model.d_ff=32 model.context=8 model.dropout=0.1 "
      "train.batch_size=3 train.grad_accum=2");
  for (const auto& [norm, threads] :
       {std::pair(NormKind::layernorm, 1), {NormKind::layernorm, 3}, {NormKind::batchnorm, 3}}) {
    const ThreadCount count(threads);
    config.model.norm = norm;
    std::vector<Token> text(200);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(i * i % 7);
    Model<float> model(config.model, 7, GemmProvider::native);
    initialise(config.model, model.layout(), 1, model.parameters);
    Optimizer<float> optimizer(config.train, model.layout());
    StepRunner runner(config, model, text);
    SiteStatistics statistics(model.config());
    const auto step = [&](Index number) {
      statistics.clear();
      const StepResult& result = runner.compute(number, &statistics);
      optimizer.update(number, 1e-3, clip_factor(1.0, result.norms.total), model.gradients, model.parameters);
    };
    for (Index number = 1; number <= 3; ++number) step(number);
    const long before = allocations;
    const int arena_before = model.tape.arena().chunks_allocated();
    for (Index number = 4; number <= 8; ++number) step(number);
    CHECK(allocations - before == 0);
    CHECK(model.tape.arena().chunks_allocated() == arena_before);
  }
}

TEST_CASE("n-gram counts take a few blocks of memory, however many n-grams differ") {
  const RandomStream stream(1, "characters");
  std::vector<Token> text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(stream.below(i, 3000));
  const long before = allocations;
  CHECK(ngram_baselines(text, text, 3000));
  CHECK(allocations - before < 2000);
}
