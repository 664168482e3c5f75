// The meter of macOS: IOReport, a private library that needs no privileges. Apple documents neither it nor
// its channels; the signatures below are those that public programs use. It is opened at run time, like
// NVIDIA's library: a system without it, or with a different one, simply has no meter.
#include <dlfcn.h>

#include <cstring>
#include <limits>

#include "power/energy_channels.h"
#include "power/meter_kinds.h"

namespace pd {
namespace {

using Ref = const void*;  // an object of Core Foundation, or null

// The functions that we call. IOReport links Core Foundation and the system's library, so its handle finds
// their functions too.
struct Functions {
  // Core Foundation. The caller releases what "Create" and "Copy" return, and not what "Get" returns.
  void (*CFRelease)(Ref);
  unsigned long (*CFGetTypeID)(Ref);
  unsigned long (*CFArrayGetTypeID)();
  unsigned long (*CFDataGetTypeID)();
  Ref (*CFStringCreateWithCString)(Ref allocator, const char* text, uint32_t encoding);
  unsigned char (*CFStringGetCString)(Ref string, char* buffer, long size, uint32_t encoding);
  long (*CFArrayGetCount)(Ref array);
  Ref (*CFArrayGetValueAtIndex)(Ref array, long index);
  Ref (*CFArrayCreateMutable)(Ref allocator, long capacity, const void* callbacks);
  void (*CFArrayAppendValue)(Ref array, Ref value);
  Ref (*CFDictionaryGetValue)(Ref dictionary, Ref key);
  Ref (*CFDictionaryCreateMutableCopy)(Ref allocator, long capacity, Ref dictionary);
  void (*CFDictionarySetValue)(Ref dictionary, Ref key, Ref value);
  const uint8_t* (*CFDataGetBytePtr)(Ref data);
  long (*CFDataGetLength)(Ref data);
  const void* kCFTypeArrayCallBacks;
  // IOReport. Channels and samples are dictionaries with an array of channels; each channel is a dictionary.
  Ref (*IOReportCopyChannelsInGroup)(Ref group, Ref subgroup, uint64_t, uint64_t, uint64_t);
  Ref (*IOReportCreateSubscription)(void*, Ref channels, Ref* subscribed, uint64_t, Ref);
  Ref (*IOReportCreateSamples)(Ref subscription, Ref channels, Ref);
  Ref (*IOReportChannelGetChannelName)(Ref channel);
  Ref (*IOReportChannelGetUnitLabel)(Ref channel);
  int64_t (*IOReportSimpleGetIntegerValue)(Ref channel, int* error);
  // The clock of the drivers' stamps.
  uint64_t (*mach_absolute_time)();
  int (*mach_timebase_info)(uint32_t* numerator_and_denominator);  // nanoseconds of a tick
};

constexpr uint32_t kUtf8 = 0x08000100;

class Library {
 public:
  // nullptr when the library or one of its functions is missing.
  static std::shared_ptr<const Library> Open(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return nullptr;
    auto library = std::shared_ptr<Library>(new Library(handle));
    return library->FindAll() ? library : nullptr;
  }
  ~Library() { dlclose(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Functions* operator->() const { return &functions_; }

  struct Release {
    const Library* library;
    void operator()(Ref object) const { (*library)->CFRelease(object); }
  };
  using Owned = std::unique_ptr<const void, Release>;
  Owned Own(Ref object) const { return {object, {this}}; }

  Owned String(const char* text) const {
    return Own(functions_.CFStringCreateWithCString(nullptr, text, kUtf8));
  }
  std::string Text(Ref string) const {  // empty when it is no string or absurdly long
    char text[128] = "";
    return string && functions_.CFStringGetCString(string, text, sizeof(text), kUtf8) ? text : "";
  }
  // The channels in a dictionary of channels or in a sample.
  std::vector<Ref> Channels(Ref dictionary) const {
    const Ref array = functions_.CFDictionaryGetValue(dictionary, String("IOReportChannels").get());
    std::vector<Ref> channels;
    if (!array || functions_.CFGetTypeID(array) != functions_.CFArrayGetTypeID()) return channels;
    for (long i = 0; i < functions_.CFArrayGetCount(array); ++i)
      channels.push_back(functions_.CFArrayGetValueAtIndex(array, i));
    return channels;
  }
  std::string Name(Ref channel) const { return Text(functions_.IOReportChannelGetChannelName(channel)); }

  double SecondsPerTick() const {
    uint32_t base[2] = {1, 1};
    functions_.mach_timebase_info(base);
    return 1e-9 * base[0] / base[1];
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}

  template <class F>
  bool Find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    return function != nullptr;
  }
  bool FindAll() {
    Functions& f = functions_;
    return Find(f.CFRelease, "CFRelease") && Find(f.CFGetTypeID, "CFGetTypeID") &&
           Find(f.CFArrayGetTypeID, "CFArrayGetTypeID") && Find(f.CFDataGetTypeID, "CFDataGetTypeID") &&
           Find(f.CFStringCreateWithCString, "CFStringCreateWithCString") &&
           Find(f.CFStringGetCString, "CFStringGetCString") && Find(f.CFArrayGetCount, "CFArrayGetCount") &&
           Find(f.CFArrayGetValueAtIndex, "CFArrayGetValueAtIndex") &&
           Find(f.CFArrayCreateMutable, "CFArrayCreateMutable") &&
           Find(f.CFArrayAppendValue, "CFArrayAppendValue") &&
           Find(f.CFDictionaryGetValue, "CFDictionaryGetValue") &&
           Find(f.CFDictionaryCreateMutableCopy, "CFDictionaryCreateMutableCopy") &&
           Find(f.CFDictionarySetValue, "CFDictionarySetValue") &&
           Find(f.CFDataGetBytePtr, "CFDataGetBytePtr") && Find(f.CFDataGetLength, "CFDataGetLength") &&
           Find(f.kCFTypeArrayCallBacks, "kCFTypeArrayCallBacks") &&
           Find(f.IOReportCopyChannelsInGroup, "IOReportCopyChannelsInGroup") &&
           Find(f.IOReportCreateSubscription, "IOReportCreateSubscription") &&
           Find(f.IOReportCreateSamples, "IOReportCreateSamples") &&
           Find(f.IOReportChannelGetChannelName, "IOReportChannelGetChannelName") &&
           Find(f.IOReportChannelGetUnitLabel, "IOReportChannelGetUnitLabel") &&
           Find(f.IOReportSimpleGetIntegerValue, "IOReportSimpleGetIntegerValue") &&
           Find(f.mach_absolute_time, "mach_absolute_time") &&
           Find(f.mach_timebase_info, "mach_timebase_info");
  }

  void* handle_;
  Functions functions_ = {};
};
using Owned = Library::Owned;

// A channel's "RawElements" are what its driver wrote: IOReportElements of the kernel's public headers, each
// with provider, channel, type, time and four values of eight bytes. The channel's time is that of the first.
// 0: none.
uint64_t StampOf(const Library& library, Ref key, Ref channel) {
  constexpr long kTime = 24;
  uint64_t stamp = 0;
  const Ref data = library->CFDictionaryGetValue(channel, key);
  if (data && library->CFGetTypeID(data) == library->CFDataGetTypeID() &&
      library->CFDataGetLength(data) >= kTime + long(sizeof(stamp)))
    std::memcpy(&stamp, library->CFDataGetBytePtr(data) + kTime, sizeof(stamp));
  return stamp;
}

class IoReportMeter final : public PowerMeter {
 public:
  // `group`: all channels of the energy model. nullptr when none is the device's, or when it may not be read.
  static std::shared_ptr<PowerMeter> Open(const std::shared_ptr<const Library>& shared, Ref group,
                                          PhysicalDevice::Kind device) {
    const Library& library = *shared;
    const std::vector<Ref> all = library.Channels(group);
    std::vector<std::string> all_names, names;
    for (const Ref channel : all) all_names.push_back(library.Name(channel));
    const Owned chosen =
        library.Own(library->CFArrayCreateMutable(nullptr, 0, library->kCFTypeArrayCallBacks));
    std::vector<double> joules_per_count;
    for (const size_t i : ChannelsOf(device, all_names)) {
      const auto joules = JoulesOf(library.Text(library->IOReportChannelGetUnitLabel(all[i])));
      if (!joules) return nullptr;
      library->CFArrayAppendValue(chosen.get(), all[i]);
      names.push_back(all_names[i]);
      joules_per_count.push_back(*joules);
    }
    if (names.empty()) return nullptr;

    Owned channels = library.Own(library->CFDictionaryCreateMutableCopy(nullptr, 0, group));
    library->CFDictionarySetValue(channels.get(), library.String("IOReportChannels").get(), chosen.get());
    // The part of `channels` that we may read. It is unknown whether we own it, so it is never released.
    Ref subscribed = nullptr;
    Owned subscription =
        library.Own(library->IOReportCreateSubscription(nullptr, channels.get(), &subscribed, 0, nullptr));
    if (!subscription) return nullptr;
    auto meter = std::make_shared<IoReportMeter>(shared, device, std::move(names), joules_per_count,
                                                 std::move(channels), std::move(subscription));
    return meter->Read() ? meter : nullptr;
  }

  IoReportMeter(std::shared_ptr<const Library> library, PhysicalDevice::Kind device,
                std::vector<std::string> names, std::span<const double> joules_per_count, Owned channels,
                Owned subscription)
      : library_(std::move(library)),
        device_(device),
        names_(std::move(names)),
        channels_(std::move(channels)),
        subscription_(std::move(subscription)),
        raw_elements_(library_->String("RawElements")),
        seconds_per_tick_(library_->SecondsPerTick()),
        sum_(joules_per_count) {}

  PhysicalDevice Device() const override { return {device_, 0, {}}; }
  std::string Source() const override {
    std::string source = "IOReport, " + names_[0];
    for (size_t i = 1; i < names_.size(); ++i) source += " + " + names_[i];
    return source;
  }

  std::optional<EnergyReading> Read() override {
    const Library& library = *library_;
    const Owned sample =
        library.Own(library->IOReportCreateSamples(subscription_.get(), channels_.get(), nullptr));
    if (!sample) return std::nullopt;
    constexpr int64_t kNone = std::numeric_limits<int64_t>::min();  // IOReport's value for "no count"
    std::vector<ChannelCount> counts(names_.size(), {kNone, 0});
    for (const Ref channel : library.Channels(sample.get())) {
      const std::string name = library.Name(channel);
      for (size_t i = 0; i < names_.size(); ++i) {
        if (names_[i] != name || counts[i].count != kNone) continue;
        counts[i] = {library->IOReportSimpleGetIntegerValue(channel, nullptr),
                     StampOf(library, raw_elements_.get(), channel)};
        break;
      }
    }
    for (const ChannelCount& count : counts)
      if (count.count < 0) return std::nullopt;
    return sum_.Add(counts,
                    {library->mach_absolute_time(), seconds_per_tick_, std::chrono::steady_clock::now()});
  }

 private:
  std::shared_ptr<const Library> library_;  // first: it releases the others
  PhysicalDevice::Kind device_;
  std::vector<std::string> names_;
  Owned channels_, subscription_, raw_elements_;
  double seconds_per_tick_;
  ChannelSum sum_;
};

}  // namespace

PowerMeters OpenIoReport(const std::string& path) {
  PowerMeters meters;
  const auto library = Library::Open(path);
  if (!library) return meters;
  const Owned group = library->Own(
      (*library)->IOReportCopyChannelsInGroup(library->String("Energy Model").get(), nullptr, 0, 0, 0));
  if (!group) return meters;
  for (const auto device :
       {PhysicalDevice::Kind::kCpu, PhysicalDevice::Kind::kGpu, PhysicalDevice::Kind::kNeuralEngine})
    if (auto meter = IoReportMeter::Open(library, group.get(), device)) meters.push_back(std::move(meter));
  return meters;
}

}  // namespace pd
