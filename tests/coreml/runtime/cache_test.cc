// Compiled models on disk, with a compiler that writes two small files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/files.h"
#include "coreml/runtime/compiled_cache.h"
#include "tests/coreml/example.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

class Cache : public testing::Test {
 protected:
  CompiledCache Open(int64_t most_bytes = 1 << 30) const { return {folder_ / "cache", most_bytes}; }

  static CompiledKey Key(uint64_t content = 1, const char* os_build = "24A335",
                         const char* machine = "Mac16,1") {
    return {"shard_0.mlpackage", content, os_build, machine};
  }

  CompiledCache::Compiler Compiler(size_t bytes = 1000) {
    return [this, bytes](fs::path* compiled) {
      *compiled = folder_ / ("compiled_" + std::to_string(++compiled_));
      fs::create_directories(*compiled / "weights");
      std::ofstream(*compiled / "model.mil") << "program " << compiled_;
      std::ofstream(*compiled / "weights" / "weight.bin") << std::string(bytes, 'w');
      return Status{};
    };
  }

  std::shared_ptr<const CompiledModel> Get(const CompiledCache& cache, const CompiledKey& key,
                                           bool anew = false, size_t bytes = 1000) {
    std::shared_ptr<const CompiledModel> model;
    const Status status = cache.Get(key, anew, {}, Compiler(bytes), &model);
    EXPECT_TRUE(status.ok()) << status.message;
    return model;
  }

  static std::string Program(const CompiledModel& model) { return ReadTextFile(model.path() / "model.mil"); }
  int Entries() const {
    int entries = 0;
    for (const auto& item : fs::directory_iterator(folder_ / "cache"))
      entries += item.path().filename() != "locks";
    return entries;
  }

  const test::TempFolder folder_;
  std::atomic<int> compiled_{0};
};

TEST_F(Cache, CompilesOnce) {
  const CompiledCache cache = Open();
  const auto first = Get(cache, Key());
  EXPECT_TRUE(first->kept());
  EXPECT_FALSE(first->found());
  const auto second = Get(cache, Key());
  EXPECT_TRUE(second->found());
  EXPECT_EQ(second->path(), first->path());
  EXPECT_EQ(compiled_, 1);
  EXPECT_FALSE(fs::exists(folder_ / "compiled_1"));  // it was moved
  EXPECT_TRUE(Get(cache, Key(2))->kept());           // other weights
  EXPECT_TRUE(Get(cache, Key(1, "24A335", "Mac15,3"))->kept());
  EXPECT_EQ(compiled_, 3);
  EXPECT_EQ(Entries(), 3);
}

TEST_F(Cache, AnUpdateOfTheSystemCompilesAnew) {
  const CompiledCache cache = Open();
  Get(cache, Key());
  EXPECT_FALSE(Get(cache, Key(1, "24B83"))->found());
  EXPECT_EQ(compiled_, 2);
  EXPECT_EQ(Entries(), 1);  // the old system's is gone
}

TEST_F(Cache, CompilesAnewWhenAsked) {
  const CompiledCache cache = Open();
  const auto in_use = Get(cache, Key());
  const auto second = Get(cache, Key(), true);
  EXPECT_FALSE(second->found());
  EXPECT_EQ(Program(*second), "program 2");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(Cache, RepairsWhatIsNotWhole) {
  const CompiledCache cache = Open();
  const auto damage = [&](const char* what, auto how) {
    fs::path entry;
    {
      const auto model = Get(cache, Key());
      entry = model->path().parent_path();
    }
    how(entry);
    const int before = compiled_;
    const auto repaired = Get(cache, Key());
    EXPECT_EQ(compiled_, before + 1) << what;
    EXPECT_TRUE(repaired->kept()) << what << ": " << repaired->why_not_kept();
    EXPECT_EQ(Program(*repaired), "program " + std::to_string(before + 1)) << what;
    EXPECT_TRUE(Get(cache, Key())->found()) << what;
  };
  damage("no mark", [](const fs::path& entry) { fs::remove(entry / "entry.json"); });
  damage("half a mark", [](const fs::path& entry) { fs::resize_file(entry / "entry.json", 20); });
  damage("an empty mark", [](const fs::path& entry) { fs::resize_file(entry / "entry.json", 0); });
  damage("another format", [](const fs::path& entry) {
    WriteFileAtomically(entry / "entry.json", std::string_view("{\"format\": 99}"));
  });
  damage("a missing file", [](const fs::path& entry) { fs::remove(entry / "model.mlmodelc" / "model.mil"); });
  damage("a short file", [](const fs::path& entry) {
    fs::resize_file(entry / "model.mlmodelc" / "weights" / "weight.bin", 500);
  });
  damage("no model", [](const fs::path& entry) { fs::remove_all(entry / "model.mlmodelc"); });
  damage("a file in its place", [](const fs::path& entry) {
    fs::remove_all(entry);
    std::ofstream(entry) << "?";
  });
  // A process that was killed while it moved the model left a part behind.
  fs::create_directories(folder_ / "cache" / (Key(7).Folder() + ".partial") / "model.mlmodelc");
  EXPECT_TRUE(Get(cache, Key(7))->kept());
  EXPECT_FALSE(fs::exists(folder_ / "cache" / (Key(7).Folder() + ".partial")));
}

TEST_F(Cache, ForgetsTheLeastRecentlyUsed) {
  const CompiledCache cache = Open(2500);
  const auto age = [&](const CompiledModel& model, int hours) {
    fs::last_write_time(model.path().parent_path() / "used",
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  age(*Get(cache, Key(1)), 1);
  age(*Get(cache, Key(2)), 2);
  Get(cache, Key(3));
  EXPECT_TRUE(Get(cache, Key(1))->found());
  EXPECT_FALSE(Get(cache, Key(2))->found());  // it was the oldest
  EXPECT_EQ(Entries(), 2);

  // What is in use stays, and so does the newest, whatever their size.
  const auto used = Get(cache, Key(4));
  age(*used, 9);
  const auto large = Get(cache, Key(5), false, 10'000);
  EXPECT_TRUE(large->kept());
  EXPECT_EQ(Program(*used).substr(0, 7), "program");
  EXPECT_EQ(Entries(), 2);
}

TEST_F(Cache, AFolderThatCannotBeWrittenIsNoFailure) {
  std::ofstream(folder_ / "file") << "no folder";
  for (const fs::path& folder : {folder_ / "file" / "cache", fs::path("/proc/pd_engine"), fs::path()}) {
    const CompiledCache cache(folder, 1 << 30);
    fs::path place;
    {
      const auto model = Get(cache, Key());
      EXPECT_FALSE(model->kept()) << folder;
      EXPECT_NE(model->why_not_kept(), "");
      EXPECT_EQ(Program(*model).substr(0, 7), "program");
      FunctionVerdict tried;
      tried.tried = true;
      model->SetVerdict("f", tried);  // known as long as the model is
      EXPECT_TRUE(model->Verdict("f")->tried);
      place = model->path();
    }
    EXPECT_FALSE(fs::exists(place)) << "left behind";
  }
}

// Nothing larger than 100 bytes can be written, as on a full disk.
TEST_F(Cache, ADiskThatIsFullIsNoFailure) {
  const CompiledCache cache = Open();
  fs::create_directories(folder_ / "cache" / "locks");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::shared_ptr<const CompiledModel> model;
  const Status status = cache.Get(
      Key(), false, {},
      [&](fs::path* compiled) {
        const Status made = Compiler()(compiled);
        const rlimit small{100, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        return made;
      },
      &model);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_FALSE(model->kept());
  EXPECT_EQ(Program(*model), "program 1");
  EXPECT_EQ(Entries(), 0);  // no half entry
}

TEST_F(Cache, PassesTheCompilersFailureOn) {
  std::shared_ptr<const CompiledModel> model;
  const Status status =
      Open().Get(Key(), false, {}, [](fs::path*) { return Status::Fail(Code::kFailed, "no"); }, &model);
  EXPECT_EQ(status.code, Code::kFailed);
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(Entries(), 0);
}

TEST_F(Cache, WhoComesWhileItIsCompiledWaits) {
  const CompiledCache cache = Open();
  const auto slow = [this](fs::path* compiled) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return Compiler()(compiled);
  };
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::shared_ptr<const CompiledModel> model;
      if (cache.Get(Key(), false, {}, slow, &model).ok() && model->found()) ++found;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled_, 1);
  EXPECT_EQ(found, 3);
}

TEST_F(Cache, WaitingCanBeCancelled) {
  const CompiledCache cache = Open();
  std::atomic<bool> compiling{false}, done{false};
  std::thread first([&] {
    std::shared_ptr<const CompiledModel> model;
    EXPECT_TRUE(cache
                    .Get(
                        Key(), false, {},
                        [&](fs::path* compiled) {
                          compiling = true;
                          while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          return Compiler()(compiled);
                        },
                        &model)
                    .ok());
  });
  while (!compiling) std::this_thread::yield();
  std::shared_ptr<const CompiledModel> model;
  EXPECT_EQ(cache.Get(Key(), false, [] { return true; }, Compiler(), &model).code, Code::kCancelled);
  done = true;
  first.join();
  EXPECT_EQ(compiled_, 1);
}

TEST_F(Cache, VerdictsStayBesideTheModel) {
  const CompiledCache cache = Open();
  FunctionVerdict verdict;
  verdict.tried = verdict.audited = true;
  verdict.share_of_ops = 0.99, verdict.share_of_cost = 0.98;
  verdict.engagement = Engagement{Engagement::Verdict::kEngaged, 12.5, 46};
  Get(cache, Key())->SetVerdict("prefill_t128_s0", verdict);
  FunctionVerdict refused;
  refused.refused = "it runs elsewhere";
  Get(cache, Key())->SetVerdict("prefill_t128_s1024", refused);
  const auto model = Get(cache, Key());
  const auto read = model->Verdict("prefill_t128_s0");
  ASSERT_TRUE(read && read->engagement);
  EXPECT_TRUE(read->tried && read->audited);
  EXPECT_EQ(read->share_of_ops, 0.99);
  EXPECT_EQ(read->engagement->verdict, Engagement::Verdict::kEngaged);
  EXPECT_EQ(read->engagement->cpu_ms, 46);
  EXPECT_EQ(model->Verdict("prefill_t128_s1024")->refused, "it runs elsewhere");
  EXPECT_EQ(model->Verdict("another"), std::nullopt);
  // A new compile knows nothing yet, and damage is nothing known.
  for (const auto& file : fs::directory_iterator(model->path().parent_path() / "functions"))
    fs::resize_file(file.path(), 5);
  EXPECT_EQ(Get(cache, Key())->Verdict("prefill_t128_s0"), std::nullopt);
  EXPECT_EQ(Get(cache, Key(), true)->Verdict("prefill_t128_s1024"), std::nullopt);
}

}  // namespace
}  // namespace pd
