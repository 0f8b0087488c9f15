// Text to tokens: UTF-8 to the byte, the split, batches, evaluation windows, n-gram baselines.
#include <numeric>
#include <set>

#include "core/error.h"
#include "data/batches.h"
#include "data/corpus.h"
#include "data/ngram.h"
#include "messages.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

const std::string austen = NORMSCOPE_SOURCE_DIR "/data/austen.txt";

Corpus load(std::string_view bytes, double val_fraction = 0, Index context = 1) {
  const ScratchFile text("a", bytes);
  return load_corpus({text.path}, val_fraction, "", context);
}

// The message that refuses a text, or nothing.
std::string refusal(std::string_view bytes, double val_fraction = 0, Index context = 1) {
  return message([&] { load(bytes, val_fraction, context); }, "");
}

}  // namespace

TEST_CASE("invalid UTF-8 is refused with the place of its first byte") {
  CHECK(refusal("ab\u00e9\xC3(").starts_with("[corpus] "));
  CHECK_HOLDS(refusal("ab\u00e9\xC3("), "invalid UTF-8 at byte 4;");
  CHECK_HOLDS(refusal("\uFEFFa\xFF"), "byte 4;");  // bytes of the file: the BOM counts
}

TEST_CASE("a BOM is dropped at the start of each file, CR, NUL and a later BOM are characters") {
  const Corpus odd = load(std::string_view("\xEF\xBB\xBF\x61\r\n\0\xEF\xBB\xBF", 10));
  CHECK(odd.vocab.decode(odd.train) == std::string_view("a\r\n\0\xEF\xBB\xBF", 7));

  const ScratchFile one("1", "\uFEFFzx"), two("2", "\uFEFFxy\u00e9");
  const Corpus corpus = load_corpus({one.path, two.path}, 0, "", 1);
  CHECK(corpus.vocab.decode(corpus.train) == "zx\nxy\u00e9");  // one word does not run into the next
  CHECK(corpus.val.empty());
  CHECK(corpus.hash == fnv1a("\uFEFFzx\n\uFEFFxy\u00e9"));  // another one than of a file with "zxxy\u00e9"
}

TEST_CASE("files that hold no text are usage errors") {
  for (const char* bytes : {"", "\uFEFF"}) CHECK_HOLDS(refusal(bytes), "is empty");
  CHECK_HOLDS(message([] { load_corpus({"/no/such/file"}, 0.1, "", 8); }), "No such file");
  CHECK_HOLDS(message([] { load_corpus({}, 0.1, "", 8); }), "no file");
}

TEST_CASE("the split is floor((1-f) N), as on paper") {
  CHECK(training_characters(10, 0.9) == 1);  // in doubles (1 - 0.9) * 10 is under 1
  CHECK(training_characters(1115394, 0.1) == 1003854);
  int wrong = 0;
  for (Index n = 1; n <= 3000; ++n) {
    for (Index percent = 0; percent <= 90; ++percent) {
      wrong += training_characters(n, static_cast<double>(percent) / 100) != (100 - percent) * n / 100;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("parts that are too short are refused with the length that they need") {
  CHECK(load("0123456789", 0.2, 7).val.size() == 2);
  CHECK_HOLDS(refusal("0123456789", 0.2, 8),
              "the training part has 8 of 10 characters; model.context = 8 needs at least 9");
  CHECK_HOLDS(refusal("0123456789", 0.1, 4), "the validation part has 1 of the 2 characters that it needs");
  CHECK(load("0123456789", 0, 9).val.empty());
  CHECK_HOLDS(refusal("0123456789", 0, 10), "needs at least 11");
}

TEST_CASE("a file of its own for validation leaves the whole of the other for training") {
  const ScratchFile train("t", "abcabc"), val("v", "xa"), tiny("w", "x");
  const Corpus corpus = load_corpus({train.path}, 0.5, val.path, 5);
  CHECK(corpus.train.size() == 6);
  CHECK(corpus.vocab.size() == 4);
  CHECK(corpus.val == std::vector<Token>{3, 0});
  CHECK(corpus.hash == fnv1a("abcabc\xFFxa"));
  CHECK_HOLDS(message([&] { load_corpus({train.path}, 0, tiny.path, 5); }), "the validation part has 1");
}

TEST_CASE("a vocabulary encodes, decodes and is written and read, and refuses what it lacks") {
  const Vocabulary vocab = Vocabulary(U"\nab\u00E9\U0001F600");
  CHECK(vocab.to_json() == "[10,97,98,233,128512]");
  CHECK(Vocabulary::from_json(vocab.to_json(), "x") == vocab);
  CHECK(vocab.decode(vocab.encode("\U0001F600\u00E9ab", "x", "y")) ==
        "\U0001F600\u00e9"
        "ab");
  CHECK(vocab.find(U'b') == 2);
  CHECK(!vocab.find(U'c'));
  CHECK(!vocab.find(0x10FFFF));
  CHECK_THROWS_AS(vocab.decode(std::vector<Token>{5}), Error);
  CHECK_THROWS_AS(vocab.decode(std::vector<Token>{-1}), Error);
  const auto unknown = [&](const char* text) { return message([&] { vocab.encode(text, "prompt", "y"); }); };
  CHECK_HOLDS(unknown("ax"), "[prompt] y: the model has no 'x' (U+0078), only the 5 characters of its ");
  CHECK_HOLDS(unknown("\u20ac"), "the model has no '\u20ac' (U+20AC)");
  CHECK_HOLDS(unknown("\x1B"), "'\\x1b' (U+001B)");

  for (const char* bad :
       {"", "[", "[]", "[1", "[1,]", "[1 2]", "[2,1]", "[1,1]", "[-1]", "[1.5]", "[1e3]", "[\"a\"]",
        "[55296]", "[1114112]", "[99999999999]", "{}", "[1] x", "[[1]]", "null"}) {
    CHECK_THROWS_AS_MESSAGE(Vocabulary::from_json(bad, "x"), Error, bad);
  }
}

TEST_CASE("a text that memory cannot hold is refused before it is read") {
  const ScratchFile text("huge", "a");
  std::filesystem::resize_file(text.path, std::uintmax_t{1} << 42);  // sparse: it takes no room on the disk
  for (const std::string& refused :
       {message([&] { load_corpus({text.path}, 0.1, "", 8); }), message([&] { read_text(text.path); })}) {
    CHECK_HOLDS(refused, text.path + ": a text of 4194304 MiB takes up to 25165824 MiB of memory, and ");
    CHECK_HOLDS(refused, " MiB are free; use a shorter text");
  }
}

TEST_CASE("characters that only the validation part has are named") {
  CHECK(unseen_characters(load("abcabcabca", 0.3, 2)).empty());
  CHECK(unseen_characters(load("abcabcabc", 0, 2)).empty());
  CHECK(unseen_characters(load("aaaaaaa\u00E9\naa", 0.4, 2)) ==
        std::vector<std::string>{"\"\\n\"", "\"\u00E9\""});
  CHECK(unseen_characters(load_corpus({austen}, 0.1, "", 128)).empty());
}

TEST_CASE("token ids and targets that are not in the vocabulary are refused") {
  Tape<double> tape;
  const Var<double> table = tape.create(5, 3), logits = tape.create(2, 5);
  for (const std::int32_t bad : {-1, 5}) {
    const std::int32_t ids[] = {0, bad};
    CHECK_THROWS_AS(embedding(tape, ids, 2, table), Error);
    CHECK_THROWS_AS(cross_entropy(tape, logits, ids), Error);
  }
}

TEST_CASE("batches lie in the text, reach both its ends, and depend on seed, step and sequence alone") {
  std::vector<Token> text(20);
  std::iota(text.begin(), text.end(), 0);
  const Index context = 16;  // starts 0..3
  const BatchSampler sampler(text, context, 5);
  std::set<Index> starts;
  std::vector<Token> tokens(8 * 16), targets(8 * 16);
  for (Index step = 1; step <= 50; ++step) {
    sampler.fill(step, 0, 8, tokens.data(), targets.data());
    for (std::size_t j = 0; j < 8; ++j) {
      const Index begin = sampler.begin(step, static_cast<Index>(j));
      starts.insert(begin);
      for (std::size_t t = 0; t < 16; ++t) {
        REQUIRE(tokens[j * 16 + t] == begin + static_cast<Index>(t));
        REQUIRE(targets[j * 16 + t] == tokens[j * 16 + t] + 1);
      }
    }
  }
  CHECK(starts == std::set<Index>{0, 1, 2, 3});

  // Steps, sequences and seeds differ.
  std::vector<Token> wide(100'000);
  const BatchSampler a(wide, context, 5), b(wide, context, 6);
  CHECK(a.begin(1, 0) != a.begin(2, 0));
  CHECK(a.begin(1, 0) != a.begin(1, 1));
  CHECK(a.begin(1, 0) != b.begin(1, 0));

  const BatchSampler only({text.data(), 17}, context, 5);  // T+1 characters: one start
  CHECK(only.begin(1, 0) == 0);
  CHECK_THROWS_AS(BatchSampler(std::span(text).first(16), context, 5), Error);
}

TEST_CASE("sequences start anywhere with the same probability") {
  const std::vector<Token> text(10 + 4);
  const BatchSampler sampler(text, 4, 1);
  std::array<int, 10> hits{};
  for (Index j = 0; j < 10'000; ++j) ++hits[static_cast<std::size_t>(sampler.begin(j / 16 + 1, j % 16))];
  for (const int n : hits) CHECK(std::abs(n - 1000) < 150);  // 5 standard deviations
}

TEST_CASE("evaluation windows predict every character but the first exactly once") {
  for (const Index context : {1, 2, 5, 8}) {
    for (Index n = 0; n <= 40; ++n) {
      std::vector<int> predicted(static_cast<std::size_t>(n));
      for (const Window& window : evaluation_windows(n, context)) {
        CHECK(window.begin % context == 0);
        CHECK(window.length >= 1);
        CHECK(window.length <= context);
        for (Index i = 1; i <= window.length; ++i) ++predicted.at(static_cast<std::size_t>(window.begin + i));
      }
      std::vector<int> expected(static_cast<std::size_t>(n), 1);
      if (n > 0) expected[0] = 0;
      CHECK(predicted == expected);
    }
  }
}

TEST_CASE("a part of the evaluation windows is whole, distinct and evenly spaced") {
  const Index context = 8;
  const std::vector<Window> some = evaluation_windows(8 * 100 + 5, context, 20);
  REQUIRE(some.size() == 20);
  for (std::size_t i = 0; i < some.size(); ++i)
    CHECK(some[i] == Window{static_cast<Index>(i) * 5 * context, context});
  CHECK(evaluation_windows(8 * 100 + 5, context, 20) == some);
  const std::vector<Window> uneven = evaluation_windows(8 * 7 + 1, context, 3);
  CHECK(uneven == std::vector<Window>{{0, 8}, {16, 8}, {32, 8}});
  CHECK(evaluation_windows(8 * 3 + 1, context, 20).size() == 3);  // no more whole ones
  CHECK(evaluation_windows(8 * 3, context, 20).size() == 2);
  CHECK(evaluation_windows(5, context, 20) == std::vector<Window>{{0, 4}});  // none whole
  CHECK(evaluation_windows(0, context, 20).empty());
}

TEST_CASE("n-grams of a short text have the context that there is; a context that was never seen is uniform") {
  const std::vector<Token> train = {0, 0, 1}, text = {0, 1};
  const auto losses = *ngram_baselines(train, text, 2);
  CHECK(losses[2].nats == doctest::Approx(-std::log(1.1 / 2.2)));  // p(b|a) after "aab": (1 + .1)/(2 + .2)
  CHECK(losses[3].nats == losses[2].nats);
  CHECK((*ngram_baselines(train, std::vector<Token>{1, 0}, 2))[2].nats == doctest::Approx(std::log(2.0)));
  CHECK_THROWS_AS(ngram_baselines(train, std::vector<Token>{1}, 2), Error);
  CHECK(!ngram_baselines(train, text, 2, [] { return true; }));
}

TEST_CASE("n-gram losses need no table of all pairs of a large vocabulary") {
  const Index vocabulary = 1'000'000;
  std::vector<Token> train(3000);  // a thousand characters, always in the same order
  for (std::size_t i = 0; i < train.size(); ++i) train[i] = static_cast<Token>(i * 791 % 1000);
  const auto losses = *ngram_baselines(train, std::span(train).first(1000), vocabulary);
  CHECK(losses[1].nats == doctest::Approx(std::log((3000 + 0.1 * vocabulary) / 3.1)));
  CHECK(losses[2].nats == doctest::Approx(std::log((3 + 0.1 * vocabulary) / 3.1)).epsilon(1e-3));
}

TEST_CASE("the corpus that comes with the program has its known sizes and n-gram losses") {
  const Corpus corpus = load_corpus({austen}, 0.1, "", 128);
  CHECK(corpus.train.size() + corpus.val.size() == 1'151'355);
  CHECK(corpus.train.size() == 1'036'219);
  CHECK(corpus.vocab.size() == 77);
  CHECK(corpus.vocab.decode(std::span(corpus.train).first(19)) == "PRIDE AND PREJUDICE");
  const auto losses = *ngram_baselines(corpus.train, corpus.val, corpus.vocab.size());
  const double expected[] = {4.3438, 3.0758, 2.4450, 1.8998, 1.5258};
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(losses[i].nats == doctest::Approx(expected[i]).epsilon(5e-5));
}
