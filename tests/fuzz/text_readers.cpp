// The readers of short texts that keep no state.
// The first byte of the input selects the reader: 'a' the first of the table.
#include "text_readers.hpp"

#include "fuzz.hpp"

#include <array>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    constexpr std::array readers{
        check_accept,        check_authority,    check_json_pointer, check_kept_outcome,
        check_lease_id,      check_lease_record, check_query,        check_redis_reply,
        check_resource_name, check_rfc3339,      check_server_error, check_token_keys,
    };
    if (input.empty()) return;
    const auto selected = static_cast<unsigned char>(input.front() - 'a') % readers.size();
    readers[selected](input.substr(1));
}

}  // namespace fencegate::fuzz
