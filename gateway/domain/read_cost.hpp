#pragma once

namespace fencegate {

/// What a read may cost the database, judging by its kind.
enum class read_cost {
    cheap,
    expensive,  ///< May read many more rows than it returns: a search, a summary, an export.
    continued   ///< The next part of an expensive read that was admitted: a full queue does not refuse it.
};

}  // namespace fencegate
