#pragma once

#include <gateway/config/config.hpp>

#include <string>
#include <vector>

namespace fencegate {

/// Returns the paths of the keys whose values differ and which a running gateway cannot change: everything but those of
/// adopt_reloadable(). Of files with secrets the content counts, of those of redis.tls the name.
std::vector<std::string> find_restart_only_changes(const config& running, const config& wanted);

/// Copies what a running gateway can change from `wanted` into `running`: auth, http.tls, http.allowed_hosts,
/// http.allowed_origins, the keys of lease ids, limits and log.level.
///
/// Out: the paths of those that differed.
std::vector<std::string> adopt_reloadable(config& running, const config& wanted);

}  // namespace fencegate
