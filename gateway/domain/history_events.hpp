#pragma once

#include <array>
#include <string_view>

namespace fencegate {

/// The types of events, as fencing.event_type and the HTTP contract have them.
inline constexpr std::array<std::string_view, 20> history_events{"lease_granted",
                                                                 "lease_renewed",
                                                                 "lease_released",
                                                                 "lease_expired",
                                                                 "lease_refused",
                                                                 "lease_revoked",
                                                                 "fence_raised",
                                                                 "write_applied",
                                                                 "write_rejected",
                                                                 "write_failed",
                                                                 "write_replayed",
                                                                 "node_quarantined",
                                                                 "node_readmitted",
                                                                 "epoch_raised",
                                                                 "request_denied",
                                                                 "guard_changed",
                                                                 "storage_generation_changed",
                                                                 "configuration_reloaded",
                                                                 "history_read",
                                                                 "person_erased"};

}  // namespace fencegate
