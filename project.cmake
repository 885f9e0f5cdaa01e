# What only this project has, as project.mk. CMakeLists.txt includes this file if it is there.
#
# Installs the sources from which `torch-openreg new` makes a backend of another name. An editable install does not need
# them, because it has the checkout.
if(NOT "${SKBUILD_STATE}" STREQUAL "editable")
  install(CODE "execute_process(
    COMMAND \"${Python_EXECUTABLE}\" \"${CMAKE_CURRENT_LIST_DIR}/new_backend/archive.py\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/sources.zip\"
    COMMAND_ERROR_IS_FATAL ANY)")
endif()
