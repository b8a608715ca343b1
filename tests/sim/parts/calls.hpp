#pragma once

#include <proto/core_io.hpp>
#include <sim/parts/messages.hpp>

#include <variant>

namespace sim {

/// A call of a client to a gateway: an input of the core, whose call_id the gateway sets.
struct call {
    std::uint32_t client = 0, generation = 0;
    lockcore::core_input input;
};

/// The clients as gateways see them. An answer takes no time, because a client counts the validity from its arrival.
class client_interface {
  public:
    virtual ~client_interface() = default;
    virtual void answer(const call& c, lockcore::call_result result) = 0;
};

}  // namespace sim
