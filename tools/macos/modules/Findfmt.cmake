# Its library is installed for this machine only. Its sources are in its headers: one unit of ours instantiates them, which
# takes a sixth of every other unit's time away, beside the use of headers alone.
add_library(pd_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cc)
target_include_directories(pd_fmt SYSTEM PUBLIC ${PD_HEADERS})
add_library(fmt::fmt ALIAS pd_fmt)
set(fmt_FOUND TRUE)
