#pragma once

#include <gateway/config/reader.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace fencegate {

/// Returns a reader for lease.verification_key_files, which reads each file that the list names into `keys`. Relative
/// names start at `folder`.
config_reader::read_value verification_key_files(std::vector<std::string>& keys, const std::filesystem::path& folder);

/// Takes the signing key from FENCEGATE_SIGNING_KEY if it is empty, and adds a fault for a missing, short or repeated
/// key.
void check_signing_keys(std::string& signing_key, const std::vector<std::string>& verification_keys,
                        config_reader::fault_list& faults);

}  // namespace fencegate
