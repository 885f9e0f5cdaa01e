# The target openreg: the library that the package is linked with. OPENREG_DEVICE_LIBRARY chooses it.
#
#   (empty)               the simulated device of third_party/openreg, as libopenreg.so
#   sim                   the same as libopenreg_sim.so, so that it can lie beside a libopenreg.so of the hardware
#   /opt/sdk/libopenreg.so  this library, which has the functions of third_party/openreg/include. Nothing is simulated
#
# CMAKE_ARGS=-DOPENREG_DEVICE_LIBRARY=sim pip install --no-build-isolation .
set(OPENREG_DEVICE_LIBRARY "" CACHE STRING "The device library: empty, sim, or the path of a library")
set(DEVICE_LIBRARY_FOLDER ${CMAKE_CURRENT_LIST_DIR}/../third_party/openreg)
cmake_path(NORMAL_PATH DEVICE_LIBRARY_FOLDER)

# Where the installed package has the library: torch_openregConfig.cmake names it.
set(DEVICE_LIBRARY_LOCATION "\${torch_openreg_ROOT}/lib/libopenreg.so")
if(OPENREG_DEVICE_LIBRARY STREQUAL "" OR OPENREG_DEVICE_LIBRARY STREQUAL "sim")
  add_subdirectory(${DEVICE_LIBRARY_FOLDER} ${CMAKE_CURRENT_BINARY_DIR}/third_party/openreg)
  if(OPENREG_DEVICE_LIBRARY STREQUAL "sim")
    set_target_properties(openreg PROPERTIES OUTPUT_NAME openreg_sim)
    set(DEVICE_LIBRARY_LOCATION "\${torch_openreg_ROOT}/lib/libopenreg_sim.so")
  endif()
elseif(IS_ABSOLUTE "${OPENREG_DEVICE_LIBRARY}" AND EXISTS "${OPENREG_DEVICE_LIBRARY}")
  set(DEVICE_LIBRARY_LOCATION ${OPENREG_DEVICE_LIBRARY})
  add_library(openreg SHARED IMPORTED)
  # Without SYSTEM the compiler has the same options as with the simulated device: only the link differs.
  set_target_properties(openreg PROPERTIES IMPORTED_LOCATION ${OPENREG_DEVICE_LIBRARY} IMPORTED_NO_SYSTEM ON)
  file(GLOB DEVICE_LIBRARY_HEADERS
    LIST_DIRECTORIES true ${DEVICE_LIBRARY_FOLDER}/include ${DEVICE_LIBRARY_FOLDER}/csrc/simulator/include)
  set_target_properties(openreg PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${DEVICE_LIBRARY_HEADERS}")
  # The package does not contain the library: it belongs to the driver of the machine.
  cmake_path(GET OPENREG_DEVICE_LIBRARY PARENT_PATH DEVICE_LIBRARY_PATH)
  list(APPEND CMAKE_INSTALL_RPATH ${DEVICE_LIBRARY_PATH})
else()
  message(FATAL_ERROR "OPENREG_DEVICE_LIBRARY is ${OPENREG_DEVICE_LIBRARY}: "
                      "it must be empty, sim, or the absolute path of a library that exists.")
endif()
