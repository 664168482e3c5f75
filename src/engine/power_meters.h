// The doors of each kind of meter, behind OpenPowerMeters. What is not there gives no meter, and no error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/energy.h"

namespace pd {

using PowerMeters = std::vector<std::shared_ptr<PowerMeter>>;

PowerMeters OpenRapl(const std::string& powercap);
PowerMeters OpenNvml();
// `library`: Apple's private IOReport, which needs no rights.
PowerMeters OpenIoReport(const std::string& library);

}  // namespace pd
