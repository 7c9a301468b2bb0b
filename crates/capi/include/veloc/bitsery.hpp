// Data structures that bitsery serializes, for client_t::mem_protect.
#ifndef TIERFLOW_VELOC_BITSERY_HPP
#define TIERFLOW_VELOC_BITSERY_HPP

#include <bitsery/adapter/stream.h>
#include <bitsery/bitsery.h>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace bitsery {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
    return [&data](std::ostream &out) {
        ::bitsery::Serializer<::bitsery::OutputBufferedStreamAdapter> to{out};
        to.object(data);
        to.adapter().flush();
    };
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
    return [&data](std::istream &in) {
        auto state = ::bitsery::quickDeserialization<::bitsery::InputStreamAdapter>(in, data);
        return state.first == ::bitsery::ReaderError::NoError && state.second;
    };
}

} // namespace bitsery
} // namespace veloc

#endif
