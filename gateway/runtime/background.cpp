#include <gateway/runtime/background.hpp>

#include <boost/asio/co_spawn.hpp>

#include <exception>
#include <utility>

namespace fencegate::runtime {

void run_in_background(boost::asio::any_io_executor executor, boost::asio::awaitable<void> work) {
    boost::asio::co_spawn(std::move(executor), std::move(work), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
}

}  // namespace fencegate::runtime
