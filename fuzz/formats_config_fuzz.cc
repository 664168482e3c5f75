// Whatever config.json says, it is a spec with finite frequencies, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "model/registry.h"
#include "model/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const pd::Json json = pd::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size), "input");
    pd::JsonReader config(json, "input");
    const pd::Family* family = pd::FindFamily(config.String("model_type"));
    if (!family) return 0;
    const pd::ModelSpec spec = family->read_config(config);
    config.Done();
    pd::CheckSpec(spec, "input");
    for (const pd::LayerSpec* layer : {&spec.layers.front(), &spec.layers.back()}) {
      const pd::RopeFrequencies rope =
          pd::Frequencies(*AttentionOf(*layer).rope, pd::FixRope(spec, spec.max_context));
      PD_CHECK(std::isfinite(rope.scale));
      for (const double frequency : rope.inverse) PD_CHECK(std::isfinite(frequency));
    }
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
