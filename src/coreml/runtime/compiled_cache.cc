#include "coreml/runtime/compiled_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr int kFormat = 1;
constexpr const char* kModelName = "model.mlmodelc";
constexpr const char* kEntryFile = "entry.json";  // written last: an entry without it is incomplete
constexpr const char* kUsedFile = "used";         // its timestamp is the last use
constexpr const char* kPartial = ".partial";      // suffix of an entry being made
constexpr const char* kOld = ".old";              // suffix of an entry being removed
constexpr auto kPollInterval = std::chrono::milliseconds(50);

// A file descriptor with a lock; the destructor releases both.
class LockFile {
 public:
  explicit LockFile(const fs::path& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  ~LockFile() {
    if (fd_ >= 0) close(fd_);
  }

  bool opened() const { return fd_ >= 0; }
  bool TryExclusive() { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }
  // Waits only for a process that removes the entry.
  bool Shared() { return flock(fd_, LOCK_SH) == 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Two locks per entry: `build` is held while it is made or removed, `use` is shared by its users.
fs::path LockPath(const fs::path& folder, const std::string& entry, const char* kind) {
  return folder / "locks" / (entry + "." + kind);
}

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

// Replaces characters that some file system does not allow.
std::string Plain(std::string_view text) {
  std::string plain(text.substr(0, 40));
  for (char& c : plain)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return plain;
}

// A folder's regular files by path, with their sizes; empty if there is no such folder.
std::map<std::string, int64_t> FilesOf(const fs::path& folder) {
  std::map<std::string, int64_t> files;
  if (!fs::exists(folder)) return files;
  for (const auto& file : fs::recursive_directory_iterator(folder))
    if (file.is_regular_file())
      files[file.path().lexically_relative(folder).generic_string()] = int64_t(file.file_size());
  return files;
}

void WriteEntryFile(const fs::path& entry, const CompiledKey& key) {
  Json files = Json::object();
  for (const auto& [name, bytes] : FilesOf(entry / kModelName)) files[name] = bytes;
  WriteFileAtomically(entry / kEntryFile, Json{{"format", kFormat},
                                               {"package", key.package},
                                               {"content", Hex(key.content)},
                                               {"os_build", key.os_build},
                                               {"machine", key.machine},
                                               {"files", files}}
                                              .dump(2));
}

struct EntryInfo {
  std::string content, machine;
  int64_t bytes = 0;
};

// The entry's own description; nullopt unless every listed file is there with its size.
std::optional<EntryInfo> ReadEntry(const fs::path& entry) {
  try {
    const std::string where = (entry / kEntryFile).string();
    const Json json = ParseJson(ReadTextFile(entry / kEntryFile), where);
    JsonReader reader(json, where);
    if (reader.Int("format") != kFormat) return std::nullopt;
    EntryInfo info{reader.String("content"), reader.String("machine"), 0};
    for (const auto& [name, bytes] : reader.Value("files").items()) {
      if (int64_t(fs::file_size(entry / kModelName / name)) != bytes.get<int64_t>()) return std::nullopt;
      info.bytes += bytes.get<int64_t>();
    }
    return info;
  } catch (const std::exception&) {
    return std::nullopt;  // damaged or incomplete
  }
}

void RemoveQuietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Moves a folder; copies it across file systems. Throws.
void MoveOrCopy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fs::copy(from, to, fs::copy_options::recursive);
}

void Touch(const fs::path& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  std::error_code ignored;  // an entry that cannot be touched looks older than it is
  fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
}

Status Wait(LockFile& lock, const CancelCheck& cancelled) {
  while (!lock.TryExclusive()) {
    if (cancelled && cancelled()) return Status::Fail(Code::kCancelled, "cancelled");
    std::this_thread::sleep_for(kPollInterval);
  }
  return {};
}

bool IsEntry(const std::string& name) {
  return name != "locks" && !name.ends_with(kPartial) && !name.ends_with(kOld);
}

// Removes an entry unless it is being made or used; then returns false.
bool RemoveUnused(const fs::path& folder, const std::string& entry) {
  LockFile build(LockPath(folder, entry, "build")), use(LockPath(folder, entry, "use"));
  if (!build.opened() || !use.opened() || !build.TryExclusive() || !use.TryExclusive()) return false;
  RemoveQuietly(folder / entry);
  return true;
}

// Makes room: removes entries of the same package for earlier systems of this machine, then the least
// recently used ones until the rest fits. `keep` stays.
void Evict(const fs::path& folder, const std::string& keep, int64_t most_bytes) {
  struct Candidate {
    std::string name;
    fs::file_time_type used;
    EntryInfo info;
  };
  std::vector<Candidate> candidates;
  int64_t total = 0;
  for (const auto& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    std::error_code unreadable;
    if (!item.is_directory() || !IsEntry(name) || !fs::exists(item.path() / kEntryFile, unreadable))
      continue;  // a folder that is no entry is somebody else's
    const EntryInfo info = ReadEntry(item.path()).value_or(EntryInfo{});
    total += info.bytes;
    if (name == keep) continue;
    std::error_code ignored;
    candidates.push_back({name, fs::last_write_time(item.path() / kUsedFile, ignored), info});
  }
  std::ranges::sort(candidates, {}, &Candidate::used);
  const EntryInfo kept = ReadEntry(folder / keep).value_or(EntryInfo{});
  for (const Candidate& c : candidates) {
    const bool outdated = c.info.content == kept.content && c.info.machine == kept.machine;
    if ((outdated || total > most_bytes) && RemoveUnused(folder, c.name)) total -= c.info.bytes;
  }
}

Json ToJson(const FunctionVerdict& v) {
  Json json = {{"format", kFormat},
               {"tried", v.tried},
               {"audited", v.audited},
               {"share_of_ops", v.share_of_ops},
               {"share_of_cost", v.share_of_cost},
               {"refused", v.refused}};
  if (v.engagement)
    json["engagement"] = {{"verdict", Name(v.engagement->verdict)},
                          {"engine_ms", v.engagement->engine_ms},
                          {"cpu_ms", v.engagement->cpu_ms}};
  return json;
}

std::optional<FunctionVerdict> ReadVerdict(const fs::path& file) {
  try {
    const Json json = ParseJson(ReadTextFile(file), file.string());
    JsonReader reader(json, file.string());
    if (reader.Int("format") != kFormat) return std::nullopt;
    FunctionVerdict v;
    v.tried = reader.Bool("tried");
    v.audited = reader.Bool("audited");
    v.share_of_ops = reader.Number("share_of_ops");
    v.share_of_cost = reader.Number("share_of_cost");
    v.refused = reader.String("refused");
    if (reader.Has("engagement")) {
      JsonReader engagement = reader.Object("engagement");
      const auto verdict = VerdictOf(engagement.String("verdict"));
      if (!verdict) return std::nullopt;
      v.engagement = Engagement{*verdict, engagement.Number("engine_ms"), engagement.Number("cpu_ms")};
    }
    return v;
  } catch (const Error&) {
    return std::nullopt;  // missing or damaged
  }
}

fs::path VerdictFile(const fs::path& entry, const std::string& function) {
  return entry / "functions" / fmt::format("{}-{}.json", Plain(function), Hex(Digest(function)));
}

// Moves a compiled model into its place; returns what prevented it, or "".
std::string Install(const fs::path& compiled, const fs::path& entry, const CompiledKey& key) {
  const fs::path partial = entry.string() + kPartial, old = entry.string() + kOld;
  try {
    RemoveQuietly(partial);
    fs::create_directories(partial / "functions");
    WriteEntryFile(partial, key);  // fails early if the folder is not writable
    MoveOrCopy(compiled, partial / kModelName);
    WriteEntryFile(partial, key);
    Touch(partial / kUsedFile);
    RemoveQuietly(old);
    if (fs::exists(entry)) fs::rename(entry, old);  // current readers keep its files
    fs::rename(partial, entry);
    RemoveQuietly(old);
    RemoveQuietly(compiled);
    return "";
  } catch (const std::exception& error) {
    std::error_code ignored;  // if it was copied, it is still in its old place
    if (!fs::exists(compiled, ignored)) fs::rename(partial / kModelName, compiled, ignored);
    RemoveQuietly(partial);
    return OneLine(error.what());
  }
}

}  // namespace

std::string CompiledKey::Folder() const {
  const uint64_t all = Digest(fmt::format("{}\n{}\n{}\n{:x}", package, os_build, machine, content));
  return fmt::format("{}-{}-{}-{}", Plain(package), Plain(os_build), Plain(machine), Hex(all));
}

CompiledModel::~CompiledModel() {
  if (lock_ >= 0) close(lock_);
  if (!temporary_.empty()) RemoveQuietly(temporary_);
}

std::optional<FunctionVerdict> CompiledModel::Verdict(const std::string& function) const {
  {
    const std::lock_guard guard(mutex_);
    if (const auto it = verdicts_.find(function); it != verdicts_.end()) return it->second;
  }
  return kept() ? ReadVerdict(VerdictFile(entry_, function)) : std::nullopt;
}

void CompiledModel::SetVerdict(const std::string& function, const FunctionVerdict& verdict) const {
  {
    const std::lock_guard guard(mutex_);
    verdicts_[function] = verdict;
  }
  if (!kept()) return;
  try {
    WriteFileAtomically(VerdictFile(entry_, function), ToJson(verdict).dump(2));
  } catch (const Error&) {
    return;  // the next process will determine it again
  }
}

CompiledCache::CompiledCache(fs::path folder, int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

Status CompiledCache::Get(const CompiledKey& key, bool anew, const CancelCheck& cancelled,
                          const Compiler& compile, std::shared_ptr<const CompiledModel>* model) const {
  const std::shared_ptr<CompiledModel> made(new CompiledModel);
  const std::string name = key.Folder();
  const fs::path entry = folder_ / name;
  std::error_code error;
  if (folder_.empty())
    made->why_not_kept_ = "no folder is set";
  else if (!fs::create_directories(folder_ / "locks", error) && error)
    made->why_not_kept_ = fmt::format("{}: {}", folder_.string(), error.message());

  LockFile build(made->why_not_kept_.empty() ? LockPath(folder_, name, "build") : fs::path());
  if (made->why_not_kept_.empty() && !build.opened())
    made->why_not_kept_ = fmt::format("{}: cannot be written", folder_.string());
  if (build.opened())
    if (Status waited = Wait(build, cancelled); !waited.ok()) return waited;

  // A readable entry is used even if the folder is not writable.
  const bool found = !folder_.empty() && !anew && ReadEntry(entry).has_value();
  if (!found) {
    fs::path compiled;
    if (Status status = compile(&compiled); !status.ok()) return status;
    if (build.opened()) made->why_not_kept_ = Install(compiled, entry, key);
    if (!made->why_not_kept_.empty()) {
      made->temporary_ = made->path_ = compiled;
      *model = made;
      return {};
    }
  }
  made->found_ = found;
  made->why_not_kept_.clear();
  made->entry_ = entry;
  made->path_ = entry / kModelName;
  if (LockFile use(LockPath(folder_, name, "use")); use.opened() && use.Shared()) made->lock_ = use.Release();
  if (found)
    Touch(entry / kUsedFile);
  else
    try {
      Evict(folder_, name, most_bytes_);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nothing to do
      // Another process is cleaning up: the rest is removed next time.
    }
  *model = made;
  return {};
}

}  // namespace pd
