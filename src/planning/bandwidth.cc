#include "planning/bandwidth.h"

#include <sys/mman.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace pd {
namespace {

constexpr int kVersion = 1;  // of the file

// Huge pages where the system has them, as for weights, so that page walks are not measured.
struct FreeMemory {
  void operator()(uint64_t* p) const { std::free(p); }
};
std::unique_ptr<uint64_t[], FreeMemory> Allocate(size_t bytes) {
  constexpr size_t kHugePage = size_t(2) << 20;
  void* memory = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
  if (memory == nullptr)
    throw Fail(ErrorKind::kOutOfMemory, "no {} bytes of memory are left to measure its bandwidth", bytes);
#ifdef MADV_HUGEPAGE
  madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; without it the rate is a little lower
#endif
  return std::unique_ptr<uint64_t[], FreeMemory>(static_cast<uint64_t*>(memory));
}

uint64_t Read(std::span<const uint64_t> words) {
  std::array<uint64_t, 32> sums{};  // independent sums: loads, not additions, set the pace
  size_t i = 0;
  for (; i + sums.size() <= words.size(); i += sums.size())
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  for (; i < words.size(); ++i) total += words[i];
  return total;
}

// The entries of the file; empty when it is absent or has another format.
Json ReadEntries(const std::filesystem::path& file) {
  if (file.empty()) return Json::array();
  try {
    const Json json = ParseJson(ReadTextFile(file), file.string());
    if (json.is_object() && json.value("version", 0) == kVersion &&
        json.value("read_bandwidth", Json()).is_array())
      return json["read_bandwidth"];
  } catch (const Error&) {
    return Json::array();
  } catch (const Json::exception&) {
    return Json::array();
  }
  return Json::array();
}

bool Matches(const Json& entry, const BandwidthKey& key) {
  return entry.is_object() && entry.value("cpu", Json()) == Json(key.cpu) &&
         entry.value("threads", Json()) == Json(key.threads) &&
         entry.value("bytes", Json()) == Json(key.bytes);
}

std::optional<double> Find(const Json& entries, const BandwidthKey& key) {
  for (const Json& entry : entries) {
    if (!Matches(entry, key) || !entry.value("bytes_per_s", Json()).is_number()) continue;
    const double rate = entry["bytes_per_s"];
    if (rate > 0) return rate;
  }
  return std::nullopt;
}

}  // namespace

std::string ProcessorName() {
#ifdef __APPLE__
  std::array<char, 128> name{};
  size_t size = name.size() - 1;
  if (sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) == 0) return name.data();
#endif
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

BandwidthKey BandwidthKeyFor(size_t bytes, int threads) {
  return {ProcessorName(), threads, std::bit_ceil(std::clamp(bytes, size_t(1) << 20, size_t(512) << 20))};
}

double MeasureBandwidth(size_t bytes, int threads) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kTime = std::chrono::milliseconds(200);
  constexpr int kLeastPasses = 3;
  const size_t words = bytes / sizeof(uint64_t);
  const auto memory = Allocate(bytes);
  std::vector<uint64_t> sums(size_t(threads), 0);
  std::barrier together(threads);
  double best = 0;
  bool done = false;  // written by thread 0 between two barriers, read by all after the second

  const auto work = [&](int thread) {
    const size_t begin = words * size_t(thread) / size_t(threads),
                 end = words * size_t(thread + 1) / size_t(threads);
    const std::span<uint64_t> part(memory.get() + begin, end - begin);
    std::ranges::fill(part, 1);
    const auto start = Clock::now();
    for (int pass = 1; !done; ++pass) {
      together.arrive_and_wait();
      const auto pass_start = Clock::now();
      sums[size_t(thread)] += Read(part);
      together.arrive_and_wait();
      const auto now = Clock::now();
      if (thread == 0) {
        best = std::max(best, double(bytes) / std::chrono::duration<double>(now - pass_start).count());
        done = pass >= kLeastPasses && now - start >= kTime;
      }
      together.arrive_and_wait();
    }
  };
  {
    std::vector<std::thread> others;  // Apple's libc++ has no jthread
    others.reserve(size_t(threads));
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (std::thread& other : others) other.join();
  }
  // Every word is 1, so the sums prove that all was read.
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  PD_CHECK(total > 0 && total % words == 0);
  return best;
}

double BandwidthStore::Get(const BandwidthKey& key) const {
  if (const auto kept = Find(ReadEntries(file_), key)) return *kept;
  const double rate = MeasureBandwidth(key.bytes, key.threads);
  Keep(key, rate);
  return rate;
}

double BandwidthStore::Improve(const BandwidthKey& key) const {
  const double kept = Find(ReadEntries(file_), key).value_or(0);
  const double rate = std::max(kept, MeasureBandwidth(key.bytes, key.threads));
  if (rate > kept) Keep(key, rate);
  return rate;
}

void BandwidthStore::Keep(const BandwidthKey& key, double rate) const {
  if (file_.empty()) return;
  Json entries = Json::array();
  for (const Json& entry : ReadEntries(file_))
    if (!Matches(entry, key)) entries.push_back(entry);
  entries.push_back(
      {{"cpu", key.cpu}, {"threads", key.threads}, {"bytes", key.bytes}, {"bytes_per_s", rate}});
  try {
    std::error_code ignored;  // the write below says what is wrong, if anything
    std::filesystem::create_directories(file_.parent_path(), ignored);
    WriteFileAtomically(file_, Json{{"version", kVersion}, {"read_bandwidth", entries}}.dump(2) + "\n");
  } catch (const Error&) {
    return;
  }
}

}  // namespace pd
