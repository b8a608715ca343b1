#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

namespace fencegate::runtime {

/// Runs a coroutine that nothing awaits, on the executor.
///
/// Errors: an exception of the coroutine is thrown again in the thread that runs it, which ends the process. A loop that
///         ended in silence would be noticed only by what it no longer does.
void run_in_background(boost::asio::any_io_executor executor, boost::asio::awaitable<void> work);

}  // namespace fencegate::runtime
