# Sets that the sources of a target are compiled as one file for each folder, if CMAKE_UNITY_BUILD is on.
function(compile_by_folder TARGET)
  get_target_property(FILES ${TARGET} SOURCES)
  list(FILTER FILES INCLUDE REGEX "[.]cpp$") # not objects of other targets
  foreach(FILE ${FILES})
    cmake_path(ABSOLUTE_PATH FILE OUTPUT_VARIABLE FOLDER)
    cmake_path(GET FOLDER PARENT_PATH FOLDER)
    cmake_path(RELATIVE_PATH FOLDER BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${FOLDER}" FOLDER)
    set_source_files_properties(${FILE} PROPERTIES UNITY_GROUP ${FOLDER})
  endforeach()
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
