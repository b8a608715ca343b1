#include <gateway/pg/read/durable_read.hpp>
#include <gateway/pg/read/read_executor.hpp>
#include <gateway/pg/read/table_reader.hpp>

#include <utility>

namespace fencegate::pg {

boost::asio::awaitable<result<read_outcome>> read_executor::read(std::string principal, read_request request,
                                                                 deadline until) {
    auto work = [this, principal, request = std::move(request), until](session_slot& slot) {
        return run_read(slot, catalogs_, answers_, principal, request, until);
    };
    return read_durably<read_outcome>(pool_, flush_, std::move(principal), read_cost::cheap, until, std::move(work));
}

}  // namespace fencegate::pg
